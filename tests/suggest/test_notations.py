"""Settings in the notations of other tools get edits. After the edits, the spec means what the user wrote. Each
notation is tried with many settings, each under several names: the edits are applied, and the result is compared with
the setting in xpc's notation.
"""

from __future__ import annotations

import pytest
from compile_support import checked, errors
from test_unknown_names import HEAD, LINE, after_all_edits, stated

from xpc.compiler.language.schema import TABLE
from xpc.compiler.suggest.known_names import NEVER_LEGAL
from xpc.compiler.suggest.legal import example
from xpc.compiler.suggest.tables import other_names
from xpc.compiler.suggest.typed_form import typed
from xpc.grammar.diagnostic import ERROR

ROUNDS = 4
NOTATIONS = {
    "a flag": "--{name} {bare}",
    "a flag with its backslash": "--{name} {bare} \\",
    "Hydra's plus": "+{name}={bare}",
    "Hydra's path": "++trainer.{name}={bare}",
    "an item of YAML": "- {name}: {bare}",
    "a type": "{name}: float = {bare}",
    "a key of a mapping": 'config["{name}"] = {quoted}',
    "JSON on a line": '{{"{name}": {quoted}}}',
    "JSON": '{{\n  "{name}": {quoted}\n}}',
    "a section": "[training]\n{name} = {value}",
    "an exported variable": "export {name}={bare}",
    "set": "set {name} {bare}",
    "set to": "set {words} to {bare}",
    "words and is": "{words} is {bare}",
    "words and of": "use a {words} of {bare}",
    "a full stop": "{name} = {value} .",
    "two on a line": "{name}={value} seed=1",
    "two and": "{name} = {value} and seed = 1",
    "a dash for a comment": "{name} = {value} -- ours",
    "a remark in brackets": "{name} = {value} (ours)",
    "a bullet": "- {name} = {value}",
    "a star": "* {words}: {bare}",
    "a number": "1. {name} = {value}",
    "bold": "- **{words}**: {bare}",
    "backticks": "`{name} = {value}`",
    "a row of a table": "| {name} | {bare} |",
    "a quoted name": '"{name}" = {value}',
    "a tag": "<{name}>{bare}</{name}>",
    "let": "let {name} = {value};",
    "brackets": "{name} = ({value})",
    "a fence": "```yaml\n{name} = {value}\n```",
    "a key of a nested mapping": 'cfg["training"]["{name}"] = {quoted}',
    "a call that sets": "set({name}, {value})",
    "an attribute that is set": 'setattr(args, "{name}", {quoted})',
    "a block": "train {{\n  {name} = {value}\n}}",
    "words and a sign": "{words} = {value}",
}
HEADERS = {
    "of": "with a {words} of {bare}",
    "set to": "with {words} set to {bare}",
    "a flag": "--{name} {bare}",
    "after a comma": ", {words} {bare}",
    "and": "with bf16 and {words} = {value}",
}


def cases() -> list[tuple[str, str, str]]:
    """For each plain setting and each of its names: the name, a value, and the setting in xpc's notation."""
    out = []
    for row in TABLE:
        value = "true" if row.kind.name == "flag" else example(row)
        right = f"{HEAD}{typed(row, value)}\n"
        plain = row.path not in NEVER_LEGAL and not row.path.startswith("train.") and value.replace(".", "").isalnum()
        if not plain or names_are_wrong(right):
            continue
        names = [row.name, *row.args[:1], *(one.replace(" ", "_") for one in other_names().get(row.path, [])[:2])]
        out += [
            (name, value, right)
            for name in dict.fromkeys(names)
            if stated(edited(f"{HEAD}{name} = {value}\n")) == stated(right)
        ]
    return out


def names_are_wrong(text: str) -> bool:
    return any(one.severity == ERROR and one.code[:3] in ("XP0", "XP1") for one in checked(text).problems)


def edited(text: str) -> str:
    for _ in range(ROUNDS):
        after = after_all_edits(text)
        if after == text:
            break
        text = after
    return text


def filled(form: str, name: str, value: str) -> str:
    number = value in ("true", "false") or value.replace(".", "").isdecimal()
    quoted = value if number else f'"{value}"'
    return form.format(name=name, value=value, bare=value, quoted=quoted, words=name.replace("_", " "))


@pytest.fixture(scope="module")
def plain_cases():
    found = cases()
    assert len(found) >= 200
    return found


def wrong(form: str, chosen: list[tuple[str, str, str]], place: str) -> list[str]:
    out = []
    for name, value, right in chosen:
        text = place.format(filled(form, name, value))
        after, wanted = stated(edited(text)), stated(right)
        more = {path: after[path] for path in ("seed", "precision") if path in after and path not in wanted}
        if after != {**wanted, **more}:
            out.append(f"{text[len(LINE) :]!r}: {after}")
    return out


@pytest.mark.slow
@pytest.mark.parametrize("notation", NOTATIONS)
def test_settings_in_other_notations_get_their_edits(notation, plain_cases):
    start = list(NOTATIONS).index(notation)
    chosen = plain_cases[start % 23 :: 23]
    found = wrong(NOTATIONS[notation], chosen, HEAD + "{}\n")
    assert len(chosen) >= 8
    assert len(found) <= 0.15 * len(chosen), found


@pytest.mark.slow
@pytest.mark.parametrize("notation", HEADERS)
def test_settings_in_a_sentence_get_their_edits(notation, plain_cases):
    start = list(HEADERS).index(notation)
    chosen = plain_cases[5 + start :: 23]
    found = wrong(HEADERS[notation], chosen, LINE + ("{}\n" if HEADERS[notation][0] == "," else " {}\n"))
    assert len(found) <= 0.15 * len(chosen), found


@pytest.mark.parametrize(
    ("written", "right"),
    [
        ("- **Learning rate**: 2e-5", "lr=2e-5"),
        ("use lora with rank 16", "lora(rank=16)"),
        ("save a checkpoint every 500 steps", "save(every=500)"),
        ("keep the last 3 checkpoints", "save(keep=3)"),
        ("lora_r: 8\nlora_alpha: 16", "lora(rank=8, alpha=16)"),
        ("config = LoraConfig(r=8)", "lora(rank=8)"),
        ("hardware:\n  gpu: a100-80gb\n  count: 4", "hardware 4 x a100-80gb"),
        ("optimizer: {name: adamw, lr: 2e-5}", "optimizer adamw(lr=2e-5)"),
        ("lr=1e-5 seed=3", "lr=1e-5\nseed=3"),
        ("trainer = SFTTrainer(args=SFTConfig(packing=True))", "packing=true"),
        ("model:\n  lora_rank: 8", "\n  lora(rank=8)"),
        ("method: dpo\nbeta: 0.2", "method=dpo\nbeta=0.2"),
        ("train {\n  lr = 1e-5\n  seed = 3\n}", "lr=1e-5\nseed=3"),
        ("set(lr, 1e-5)", "lr=1e-5"),
        ('cfg["optim"]["lr"] = 1e-5', "lr=1e-5"),
        ("fsdp reshard after forward = true", "strategy fsdp(reshard=true)"),
        ("train batch size = 64", "gbs=64"),
        ("walltime = 08:00:00", "launch slurm(time=8h)"),
        ("lora: true\nlora_r: 16", "lora(rank=16)"),
        ("num_nodes: 2\ngpus_per_node: 8\ngpu_type: h100-80gb", "nodes=2\nhardware 8 x h100-80gb"),
        ("gpu = h100-80gb\nnum_gpus = 4", "hardware 4 x h100-80gb"),
        ("policy.sequence_packing.enabled = true", "packing"),
        ("save_interval = 500ba", "save(every=500)"),
    ],
)
def test_edits_of_lines_write_the_setting(written, right):
    after = edited(f"{HEAD}{written}\n")
    assert after == f"{HEAD}{right}\n"
    assert not [one for one in errors(checked(after)) if one[:3] in ("XP0", "XP1")]


@pytest.mark.parametrize(
    ("written", "right"),
    [
        ("with lora of rank 16 and alpha 32", " with lora(rank=16, alpha=32)"),
        ("for at most 500 steps", " for 500 steps"),
        ("with 3 epochs", " for 3 epochs"),
        ("with optimizer adamw lr 1e-5", " with optimizer adamw lr=1e-5"),
        ("and save to out/a", ' with save="out/a"'),
        ("with dropout 0.1 in lora", " with lora(dropout=0.1)"),
        ("with a 4096 token context", " with seq=4096"),
        ("and push it to me/model", " with hub(name=me/model)"),
        ("with jit_compile true", " with compile"),
        ("with torch_dtype bfloat16 lr 1e-5", " with dtype=bf16 lr=1e-5"),
        ("with eval_strategy epoch", " with eval(every=epoch)"),
        ("with lora@rank=8", " with lora(rank=8)"),
    ],
)
def test_edits_of_sentences_write_the_setting(written, right):
    assert edited(f"{LINE} {written}\n") == f"{LINE}{right}\n"


def test_a_comment_stays():
    assert edited(f"{HEAD}- lr = 1e-5 (tuned)\n") == f"{HEAD}lr=1e-5  # tuned\n"


@pytest.mark.parametrize("line", ["linear warmup of 100", "adamw 8bit", "constant learning rate 1e-5"])
def test_a_value_is_never_dropped(line):
    number = line.replace("8bit", "8").split()[-1]
    assert number in edited(f"{LINE} with {line}\n")
