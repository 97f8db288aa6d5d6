"""LANGUAGE.md as a contract: its examples, its equivalences, and what it says about units, references and bases."""

import os

import pytest
from case_support import spec
from compile_support import (
    CHATML,
    HEAD,
    REPOSITORY,
    SEED,
    SENTENCE,
    checked,
    codes,
    compiled,
    edited,
    errors,
    of,
    only,
    put,
    shown,
    value,
)

from xpc.compiler.language import schema
from xpc.compiler.language.kinds import Amount
from xpc.compiler.render import render


def values(text, root=None):
    found = checked(text, root) if root else checked(text)
    assert found.spec is not None, shown(found)
    return {path: one.value for path, one in found.spec.values.items()}


# -- the examples ---------------------------------------------------------------------------------------------------


def test_seed_recipe_is_clean():
    found = checked(SEED)
    assert found.spec is not None, shown(found)
    # A V100 needs torch's other wheels, and the page leaves the length to its default; nothing else to say.
    assert set(codes(found)) <= {"XP190", "XP801"}, shown(found)
    assert ["seq=1024" in one.message for one in of(found, "XP190")] == [True]
    assert [found.spec.get(f"batch.{name}") for name in ("gbs", "micro", "accum")] == [528, 11, 6]
    assert found.spec.hardware.world == 8
    assert found.spec.values["batch.accum"].origin.why == "528 / (11 x 8)"
    assert found.spec.get("strategy.allgather_bucket") == 500_000_000
    assert found.spec.get("strategy.overlap_comm") is False
    assert found.spec.get("strategy.round_robin_gradients") is True
    assert found.spec.get("optimizer.betas") == (0.9, 0.95)
    assert found.spec.get("schedule.warmup") == Amount("count", 40)
    assert found.spec.get("schedule.min_lr") == Amount("absolute", 0)
    assert found.spec.get("track.name") == "my-second-sft-exp"
    assert found.spec.data[0].config == "0625"


def test_seed_recipe_with_bf16_is_rejected():
    found = checked(SEED.replace("precision fp32", "precision bf16"))
    assert errors(found) == ["XP301"], shown(found)
    one = only(found, "XP301")
    assert one.primary is not None
    assert one.primary.source.position(one.primary.span.start)[0] == 6
    assert [label.source.position(label.span.start)[0] for label in one.related] == [5]
    assert checked(edited(SEED.replace("precision fp32", "precision bf16"), one)).spec is not None


def test_the_sentence_compiles_with_notes():
    found = checked(SENTENCE)
    assert found.spec is not None, shown(found)
    assert {one.severity for one in found.problems} == {"note"}
    assert found.spec.text("hardware") == "8 x h100-80gb"
    assert any("8 x h100-80gb" in one.message for one in of(found, "XP190"))
    assert found.spec.integer("batch.gbs") == 528
    assert 66 % found.spec.integer("batch.micro") == 0
    assert [found.spec.get(path) for path in ("strategy", "precision", "memory.liger")] == ["zero2", "bf16", True]
    assert "XP125" not in codes(found)  # a one-liner needs no edition


XP201 = """\
XP201 batch-does-not-divide: gbs=512 is not micro x accumulation x 8 GPUs
 --> v100.xp:1:50
  |
1 | train qwen2.5-3b on infinity-instruct with zero2 gbs=512 micro=11 bf16 ligre
  |                                                  ^^^^^^^ 512 / (11 x 8) = 5.82
help: the nearest global batches are gbs=440 (accumulation 5) and gbs=528 (accumulation 6)
"""


def test_the_diagnostic_of_the_page_byte_for_byte():
    text = "train qwen2.5-3b on infinity-instruct with zero2 gbs=512 micro=11 bf16 ligre\n"
    found = checked(text, name="v100.xp")
    assert sorted(errors(found)) == ["XP101", "XP201"], shown(found)  # both in one run
    assert XP201 in render(found.problems, "full")
    assert render(of(found, "XP201"), "full").startswith(XP201)
    assert only(found, "XP101").edits[0].text == "liger"


def test_every_example_file_of_the_grammar_resolves_without_an_exception(tmp_path):
    folder = os.path.join(REPOSITORY, "tests", "grammar", "examples")
    put(tmp_path, {"base.xp": "seed 1\n", "chatml.jinja": CHATML})
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as handle:
            found = checked(handle.read(), str(tmp_path), name)
        assert not [code for code in codes(found) if code < "XP100"], name


def test_mid_training_example(tmp_path):
    """As on the page: it compiles for slurm, and pushes."""
    with open(os.path.join(REPOSITORY, "tests", "grammar", "examples", "mid-training.xp"), encoding="utf-8") as handle:
        text = handle.read()
    root = put(tmp_path, {"chatml.jinja": CHATML})
    found = checked(text, root)
    assert found.spec is not None, shown(found)
    assert found.spec.get("launch") == "slurm"
    assert found.spec.hardware.world == 64
    assert [found.spec.get(f"batch.{name}") for name in ("gbs", "micro", "accum")] == [128, 1, 2]
    assert found.spec.get("batch.seq") == 32768
    assert found.spec.get("save.every") == Amount("share", 0.05)
    assert (found.spec.get("save.hub"), found.spec.get("save.hub.name")) == (True, "SmolLM3-Mid")
    assert [source.split for source in found.spec.data] == [
        "Llama_Nemotron_Post_Training_Dataset_reasoning_r1",
        "OpenThoughts3_1.2M",
    ]
    assert all(source.columns == ("messages",) for source in found.spec.data)
    assert found.spec.get("launch.nccl_timeout") == 14400


def test_a_sweep_is_as_many_runs_as_its_lists_say():
    text = HEAD + "sweep {\n  lr = [1e-6, 2e-6, 5e-6]\n  zip {\n    gbs = [128, 256]\n    micro = [16, 16]\n  }\n}\n"
    found = checked(text)
    assert len(found.members) == 6, shown(found)


# -- three equivalences ---------------------------------------------------------------------------------------------

SAMPLES = {
    "flag": ("true", "false"),
    "int": ("8",),
    "tokens": ("2048", "2Ki"),
    "real": ("0.5", "1e-5"),
    "steps_or_share": ("40", "3%"),
    "real_or_share": ("0.1", "10%"),
    "every": ("100", "5%", "epoch"),
    "rows_or_share": ("1000", "5%"),
    "text": ('"a b"',),
    "path": ('"out/x"',),
    "name": ("main", '"a b"'),
    "reals": ("[0.9, 0.95]",),
    "names": ("[messages]",),
    "duration": ("30m", "7200s"),
    "hardware": ("8 x a100-80gb", "2 x cpu"),
    "text_or_file": ('"be brief"',),
    "share": ("70%",),
    "targets": ("all-linear", "[q_proj, v_proj]"),
    "repository": ("model", "me/model", '"me/model"'),
}
NAMED = {"method.loss": ("dft", "[nll]"), "method.rewards": ("accuracy", "[accuracy(weight=1), format]")}


def samples():
    """Every setting of the schema that compiles, with legal values."""
    for row in schema.TABLE:
        # What names a file or an adapter's folder is looked for, and is tried where there is one.
        if row.pending or row.path.startswith("train.") or row.kind.name == "file" or row.path == "lora.from":
            continue
        plain = ("trl-0.18",) if row.path == "target" else NAMED.get(row.path) or SAMPLES.get(row.kind.name, ())
        for written in row.choices or plain:
            if (row.path, written) not in schema.CHOICE_PENDING:
                yield row, written


def stated(text):
    """What the spec itself says, whether or not the rules like it."""
    from xpc.compiler.files import Workspace
    from xpc.compiler.language.expand import expand
    from xpc.compiler.language.load import load
    from xpc.compiler.resolve.resolve import resolve
    from xpc.grammar.source import Source

    loaded = load(Source("t.xp", text), Workspace("/no-such-folder"))
    assert not loaded.problems, [one.message for one in loaded.problems]
    assert not expand(loaded.file).problems
    resolved, problems = resolve(loaded, Workspace("/no-such-folder"))
    assert resolved is not None
    assert not [one for one in problems if one.severity == "error"], [one.message for one in problems]
    return {path: one.value for path, one in resolved.values.items()}, resolved.hardware


@pytest.mark.parametrize("path", sorted({row.path for row, _ in samples()}))
def test_with_body_and_call_say_the_same(path):
    for row, written in samples():
        if row.path == path:
            forms_say_the_same(row, written)


def forms_say_the_same(row, written):
    header = f"train qwen2.5-3b on {'alpaca' if row.path in ('data.prompt', 'data.context') else 'infinity-instruct'}"
    also = f"{header} with"
    if row.methods and "sft" not in row.methods:
        header = f"{header} with {row.methods[0]}"
        also = header
    parts = row.path.split(".")
    forms = []
    if row.head:
        forms.append(f"{header}\n{row.path} {written}\n")
        if not written.startswith(('"', "[")) and " " not in written:
            forms.append(f"{also} {row.path}({written})\n")
        forms.append(f"{header}\n{row.path} = {written}\n")
    elif len(parts) == 2:
        forms.append(f"{header}\n{parts[0]} {{\n  {row.name} = {written}\n}}\n")
        forms.append(f"{header}\n{parts[0]}({row.name}={written})\n")
        forms.append(f"{header}\n{parts[0]} {row.name}={written}\n")
        forms.append(f"{also} {parts[0]}({row.name}={written})\n")
        if row.path not in ("data.seed", "eval.micro"):  # below
            forms.append(f"{also} {parts[0]} {row.name}={written}\n")
        if not row.inner:
            forms.append(f"{also} {row.name}={written}\n")
            forms.append(f"{header}\n{row.name} = {written}\n")
        if row.kind.name == "flag" and written == "true":
            forms.append(f"{header}\n{parts[0]} {{\n  {row.name}\n}}\n")
            forms.append(f"{header}\n{parts[0]}({row.name})\n")
    else:
        forms.append(f"{header}\n{parts[0]} {{\n  {parts[1]} {{\n    {row.name} = {written}\n  }}\n}}\n")
        forms.append(f"{header}\n{parts[0]} {{\n  {parts[1]}({row.name}={written})\n}}\n")
        forms.append(f"{also} {parts[1]}({row.name}={written})\n")
    if row.choices and row.bare and written != "none":
        forms.append(f"{also} {written}\n")
        forms.append(f"{header}\n{written}\n")
    first, hardware = stated(forms[0])
    assert row.path in first
    for form in forms[1:]:
        again, same = stated(form)
        assert (again, same) == (first, hardware), form


def test_a_bare_choice_takes_the_settings_of_its_clause():
    assert values(spec(strategy="zero2(overlap_comm=false)")) == values(
        spec(strategy="zero2").replace("strategy zero2", "zero2(overlap_comm=false)")
    )
    assert value(HEAD + 'wandb(name="x")\n', "track.name") == "x"


def test_settings_behind_a_name_of_the_sentence_are_its_own_as_in_the_body():
    """`with lora rank=8` is `lora rank=8`; what the body has no setting of ends there."""
    lines = [
        'track wandb name="x" every=5',
        "launch slurm time=12h requeue",
        "lora rank=8 alpha=16",
        "zero2 overlap_comm=false",
        'save "out/x" every=100 keep=2',
        "extra trl neftune_noise_alpha=5",
        "packing isolate=mask",
        "gbs=64",
    ]
    header = "train qwen2.5-3b on infinity-instruct"
    body, inline = ("\n".join([header, *lines]) + "\n"), f"{header} with {' '.join(lines)}\n"
    assert values(inline) == values(body)
    assert checked(inline).spec.extra["trl"]["neftune_noise_alpha"].value == 5
    swept = (f"{header} with sweep lr=[1e-6, 2e-6] gbs=64\n", f"{header}\nsweep lr=[1e-6, 2e-6]\ngbs = 64\n")
    assert [[one.name for one in checked(text).members] for text in swept] == [["lr=1e-06", "lr=2e-06"]] * 2
    # A bare `strategy` is the clause; `micro` behind `eval` may be either, and is neither.
    assert value(f"{header} with flash2 packing strategy=zero3\n", "strategy") == "zero3"
    for written, meant in (("eval split=test micro=8", "eval(split=test, micro=8)"), ("data seed=3", "data(seed=3)")):
        text = f"{header} with {written}\n"
        (found,) = [one for one in checked(text).problems if one.severity == "error"]
        assert edited(text, found) == f"{header} with {meant}\n"


def test_every_choice_belongs_to_one_setting():
    seen: dict[str, str] = {}
    for row in schema.TABLE:
        for name in row.choices if row.bare else ():
            if name != "none":
                assert name not in seen, (name, row.path, seen.get(name))
                seen[name] = row.path
    taken = {row.name for row in schema.TABLE if not row.inner} & set(seen)
    assert not taken


def test_bare_gpu_and_count():
    assert value(SENTENCE.replace("bf16", "4 x a100-80gb bf16 micro=11"), "hardware") == "4 x a100-80gb"
    assert value(SENTENCE.replace("bf16", "a100-80gb bf16 micro=11"), "hardware") == "1 x a100-80gb"
    assert value("train gpt2 on alpaca with cpu\n", "hardware") == "1 x cpu"
    assert value("train gpt2 on alpaca with 2 x cpu\n", "hardware") == "2 x cpu"


def test_offload_alone_means_cpu():
    assert value(spec(strategy="zero3 offload"), "strategy.offload") == "cpu"
    assert value(spec(strategy="zero3(offload=optimizer)"), "strategy.offload") == "optimizer"


@pytest.mark.parametrize(
    ("old", "name", "reshard"),
    [
        ("full_shard", "fsdp", True),
        ("shard_grad_op", "fsdp", False),
        ("no_shard", "ddp", None),
        ("hybrid_shard", "hsdp", True),
        ("hybrid_shard_zero2", "hsdp", False),
    ],
)
def test_old_strategy_names(old, name, reshard):
    found = checked(spec("nodes 2", strategy=old, batch="gbs=128 micro=8"))
    assert found.spec is not None, shown(found)
    assert found.spec.get("strategy") == name
    assert found.spec.get("strategy.reshard") is reshard
    assert found.spec.written("strategy")


def test_older_target():
    found = checked(spec("target trl-0.18"))
    assert found.spec is not None, shown(found)
    assert found.spec.stack.name == "trl-0.18"
    assert b"trl==0.18.0" in compiled(spec("target trl-0.18"))["requirements.txt"]


# -- extra and comments ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("escape", "line", "code"),
    [
        ("trl", "learning_rate = 1e-5", "XP120"),
        ("trl", "gradient_accumulation_steps = 2", "XP120"),
        ("accelerate", "mixed_precision = bf16", "XP120"),
        ("deepspeed", "train_batch_size = 8", "XP120"),
        ("trl", "neftune_noise_alfa = 5", "XP121"),
        ("accelerate", "num_prcesses = 5", "XP121"),
        ("deepspeed", "nonsense = 5", "XP121"),
    ],
)
def test_extra_refuses(escape, line, code):
    found = checked(spec(f"extra {escape} {{\n  {line}\n}}"))
    assert errors(found) == [code], shown(found)
    one = only(found, code)
    assert one.help
    if line.startswith("neftune"):
        assert "neftune_noise_alpha" in one.help


def test_extra_is_passed_on():
    text = spec(
        "extra trl {\n  neftune_noise_alpha = 5\n}",
        "extra deepspeed {\n  wall_clock_breakdown\n  zero_optimization {\n    sub_group_size = 1M\n  }\n}",
    )
    files = compiled(text)
    assert b'"neftune_noise_alpha": 5' in files["trainer_args.json"]
    assert b'"wall_clock_breakdown": true' in files["deepspeed.json"]
    assert b'"sub_group_size": 1000000' in files["deepspeed.json"]


def test_nested_extra_says_the_same_in_every_form():
    forms = ("zero_optimization {\n    sub_group_size = 1M\n  }", "zero_optimization(sub_group_size=1M)",
             "zero_optimization { sub_group_size = 1M }", "zero_optimization.sub_group_size = 1M")  # fmt: skip
    made = [compiled(spec(f"extra deepspeed {{\n  {form}\n}}"))["deepspeed.json"] for form in forms]
    assert b'"sub_group_size": 1000000' in made[0]
    assert made == made[:1] * 4


def test_an_owned_name_of_a_nested_call_is_told_its_setting():
    found = only(checked(spec("extra deepspeed {\n  tensorboard(enabled=true)\n}")), "XP121")
    assert "`track=tensorboard`" in found.help


def test_extra_of_nothing_known():
    assert errors(checked(spec("extra axolotl {\n  a = 1\n}"))) == ["XP106"]


def test_nested_extra_of_an_owned_name():
    found = checked(spec("extra deepspeed {\n  zero_optimization {\n    stage = 3\n  }\n}"))
    assert errors(found) == ["XP120"], shown(found)


def test_comments_mean_nothing():
    text = spec()
    assert values("# a\n" + text.replace("\n", '  # c { [ " = \n')) == values(text)


def test_the_order_of_clauses_means_nothing():
    lines = spec().splitlines()
    assert values("\n".join([*lines[:3], *reversed(lines[3:])]) + "\n") == values(spec())


# -- suggestions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("max_seq_length=2048", "seq"),
        ("learning_rate=1e-5", "lr"),
        ("per_device_train_batch_size=1", "micro"),
        ("gradient_accumulation_steps=2", "accum"),
        ("ligre", "liger"),
        ("zero_2", "zero2"),
        ("bfloat16", "bf16"),
        ("pakcing", "packing"),
    ],
)
def test_names_of_other_tools_are_understood(written, meant):
    found = checked(f"train qwen2.5-3b on infinity-instruct with {written}\n")
    one = only(found, "XP101")
    assert f"`{meant}`" in (one.help or ""), shown(found)


@pytest.mark.parametrize(
    ("method", "batch", "words"),
    [
        ("sft", "", "longer rows are cut, and the run counts them"),
        ("sft", " packing", "longer rows are cut, and the run counts them"),
        ("sft", " packing(strategy=bfd_split)", "longer rows are divided"),
        ("sft", " padding_free", None),
        ("reward", "", "longer rows are left out, and the run counts them"),
        ("orpo", "", "longer rows are cut"),
        ("grpo(rewards=[accuracy])", "", None),
    ],
)
def test_a_length_that_is_not_written_is_told(method, batch, words):
    """What becomes of longer rows is said; nothing where the target cuts none, or the method has no length."""
    text = spec(f"method {method}", batch=f"gbs=128 micro=16{batch}").replace(" seq=1024", "")
    notes = [one for one in of(checked(text), "XP190") if "longest sequence" in one.message]
    assert [one.message for one in notes] == (
        [f"no longest sequence is written: seq=1024; {words}"] if words else []
    ), shown(checked(text))
    stated = checked(text.replace("gbs=128", "seq=1024 gbs=128"))
    assert not [one for one in of(stated, "XP190") if "longest sequence" in one.message]
