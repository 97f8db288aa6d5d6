"""`xpc explain` knows every name that `xpc check` knows: settings, codes, choices, the registry, libraries'
arguments.
"""

from __future__ import annotations

import pytest

from xpc.compiler import registry, stacks
from xpc.compiler.cli import COMMANDS, main
from xpc.compiler.explain import names
from xpc.compiler.explain.texts import explain
from xpc.compiler.language import extras, schema
from xpc.compiler.language.codes import CODES, first_sentence
from xpc.compiler.language.methods import METHODS
from xpc.compiler.language.rewards import REWARDS
from xpc.grammar.checks import WORDS


def library_names() -> list[str]:
    """The arguments of every trainer on every stack, and the keys of accelerate.yaml and deepspeed.json."""
    out: set[str] = set()
    for target in map(stacks.load, stacks.names()):
        assert target is not None
        for method in METHODS:
            if target.refused(method) is None:
                out |= set(target.fields(target.config(method)))
        for library in ("accelerate", "deepspeed"):
            out |= extras.legal_names(target, library) | extras.owned_names(target, library, "sft")
        out |= {*target.renamed, *target.removed}
    return sorted(out)


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        pytest.param([row.path for row in schema.TABLE] + [row.name for row in schema.TABLE], id="settings"),
        pytest.param(list(schema.CLAUSES), id="clauses"),
        pytest.param([name for row in schema.TABLE for name in row.choices], id="choices"),
        pytest.param(list(CODES), id="codes"),
        pytest.param(list(registry.model_names()), id="models"),
        pytest.param(list(registry.gpu_names()), id="gpus"),
        pytest.param(list(registry.dataset_names()), id="datasets"),
        pytest.param(list(REWARDS), id="rewards"),
        pytest.param(library_names(), id="library names"),
        pytest.param(["master_port", "tokenizer_name", "sample_packing", "t4-16gb"], id="names of other tools"),
    ],
)
def test_every_name_is_explained(names):
    assert [name for name in names if not explain(name)] == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("learning_rate", "trl-1.16: `optimizer.lr` decides it"),
        ("qwen2.5-7b", "Qwen/Qwen2.5-7B on the Hub"),
        ("h100-80gb", "compute capability 9.0"),
        ("capybara", "a dataset, trl-lib/Capybara on the Hub, split train\n"),
        ("gsm8k", "a dataset, openai/gsm8k on the Hub, configuration main, split train\n"),
        ("enable_thinking", "write `chat_template = qwen3(enable_thinking=VALUE)` in `model`"),
        ("accuracy", "method grpo(rewards=[accuracy])"),
        ("zero_optimization.sub_group_size", "`extra deepspeed` has"),
        ("warmup_ratio", "`warmup_steps` today"),
        ("hardware", "a100-80gb"),
        ("log_level", "console output only"),
        ("load_best_model_at_end", "XP511: With `load_best_model_at_end`, the interval of `save` must be a multiple"),
        ("leave_one_out", "leave_one_out: `method` decides it: training method (rloo)\n"),
        ("load_in_8bit", "load_in_8bit: `lora.bits` decides it: bits of the frozen base: 4 or 8\n"),
    ],
)
def test_an_explanation_has_the_main_fact(name, text):
    assert text in (explain(name) or "")


@pytest.mark.parametrize(("word", "command"), [("chek", "check"), ("review", "diff"), ("train", "compile")])
def test_misspelled_command_lists_the_commands(word, command, capsys):
    assert main([word, "x.xp"]) == 2
    reported = capsys.readouterr().err
    assert f"did you mean `xpc {command}`?" in reported
    assert "sweep" not in reported
    assert all(name in reported for name in COMMANDS)


def test_ambiguous_name_explains_both_meanings() -> None:
    reported = {name: explain(name) or "" for name in ("cosine", "kto", "full_shard", "fp8_config")}
    assert "a choice of `schedule`" in reported["cosine"]
    assert "a reward function" in reported["cosine"]
    assert METHODS["kto"].doc in reported["kto"]
    assert "the same as `strategy fsdp(reshard=true)`" in reported["full_shard"]
    assert "a mapping, which `extra accelerate` cannot write" in reported["fp8_config"]


def test_clause_is_explained_by_its_settings() -> None:
    for clause in schema.CLAUSES:
        if clause not in schema.BY_PATH:
            reported = explain(clause) or ""
            assert [row.path for row in schema.children(clause) if f"{row.path}: " not in reported] == [], clause


@pytest.mark.parametrize("name", schema.SOURCE_SETTINGS)
def test_the_example_of_a_source_is_one_that_check_takes(name, tmp_path) -> None:
    reported = (explain(name) or "").partition(f"{name} of a source:")[2]
    assert reported
    assert reported in (explain(f"data.{name}") or "")
    line = next(line.partition("example")[2].strip() for line in reported.splitlines() if "example" in line)
    (tmp_path / "x.xp").write_text(f"train qwen2.5-0.5b on talk for 1 epochs\n{line}\n")
    assert main(["check", str(tmp_path / "x.xp")]) == 0


def test_setting_named_like_a_library_argument_explains_both() -> None:
    reported = explain("max_length") or ""
    assert "`batch.seq` decides it" in reported
    assert "method.vllm.max_length: " in reported


def test_words_stacks_and_amounts_are_explained() -> None:
    words = (*WORDS, *names.WORDS, *names.AMOUNTS, *stacks.names())
    assert [name for name in words if not explain(name)] == []
    assert "save.every" in (explain("never") or "")
    assert "transformers" in (explain("trl-0.18") or "")


def test_what_a_spec_says_of_them(tmp_path, capsys) -> None:
    page = tmp_path / "x.xp"
    page.write_text(
        "train qwen2.5-0.5b on talk for 1 epochs with 1 x h100-80gb seq=64\n"
        "data talk { smoltalk(take=5%), holdout=10 }\neval every=7\n"
    )
    for name, text in (("eval", "eval.every = 7"), ("take", "take 5%"), ("max_length", "batch.seq = 64")):
        assert main(["explain", f"{page}:{name}"]) == 0
        reported = capsys.readouterr().out
        assert text in reported
        assert "has no value" not in reported


def test_a_dot_between_backticks_ends_no_sentence():
    assert first_sentence("Digits, `_ - . : /` and `#`. The rest.") == "Digits, `_ - . : /` and `#`."
    assert first_sentence("Write e.g. `a { ... }`. Or not.") == "Write e.g. `a { ... }`."
    assert first_sentence("One sentence") == "One sentence"


@pytest.mark.parametrize("code", ["XP301", "XP506", "XP208", "XP890"])
def test_a_code_ends_with_its_stacks_its_settings_and_how_to_silence_it(code: str) -> None:
    text = explain(code)
    assert text is not None
    assert "proof" not in text
    assert "tests/" not in text
    *_, ending = text.split("\n\n")
    assert ending.startswith("Applies on trl-")
    assert "Reads the settings " in ending
    silenced = f"A comment at the end of the line silences it: `# xpc: allow {code} REASON`.\n"
    assert ending.endswith(silenced) is (code == "XP208"), "only a warning can be silenced"
