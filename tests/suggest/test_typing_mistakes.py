"""The help for a misspelt setting contains the correct name. Every argument of the libraries has an answer: a setting,
an `extra` argument, or a reason.
"""

from __future__ import annotations

import random

import pytest
from compile_support import checked, edited
from test_unknown_names import HEAD, errors, first, stated

from xpc.compiler import stacks
from xpc.compiler.language import schema
from xpc.compiler.language.kinds import BLOCK, FLAG
from xpc.compiler.suggest.known_names import NEVER_LEGAL
from xpc.compiler.suggest.legal import example
from xpc.compiler.suggest.typed_form import typed
from xpc.compiler.suggest.unknown_names import misspelt
from xpc.compiler.suggest.unknown_names.misspelt import mistyped

OUTER = [
    row
    for row in schema.TABLE
    if not (row.inner or row.kind is BLOCK or row.path.startswith("train.") or row.path in NEVER_LEGAL)
    and row.path not in ("hardware", "model.rope")
]
LEGAL = {*schema.CLAUSES, *schema.bare_choices(), *schema.outer_names(), *(row.name for row in schema.TABLE)}
NEIGHBOURS = {
    "a": "s", "c": "x", "d": "s", "e": "r", "g": "h", "i": "o", "k": "l", "l": "k", "m": "n", "n": "m", "o": "p",
    "p": "o", "r": "t", "s": "d", "t": "y", "u": "i", "v": "b", "w": "q",
}  # fmt: skip


def mistakes(name: str, seed: int) -> list[str]:
    """Return six copies of a name, each with one typing mistake: a letter that is missing, swapped, doubled, or
    replaced by its neighbour on the keyboard.
    """
    rng, out = random.Random(f"{name}{seed}"), []
    for _ in range(6):
        at = rng.randrange(len(name))
        kinds = (
            name[:at] + name[at + 1 :],
            name[:at] + name[at : at + 2][::-1] + name[at + 2 :],
            name[:at] + name[at] + name[at:],
            name[:at] + NEIGHBOURS.get(name[at], name[at]) + name[at + 1 :],
        )
        out.append(rng.choice(kinds))
    return [one for one in dict.fromkeys(out) if one not in LEGAL and len(one) > 2]


@pytest.mark.slow
def test_a_mistyped_setting_is_suggested_with_its_value():
    """At least 99 of 100 misspelt names get a suggestion. No edit states a setting that was not intended."""
    wrong, astray, total = [], [], 0
    for row in OUTER:
        value = None if row.kind is FLAG else example(row)
        form = typed(row, value)
        at = form.rfind(row.name)
        for name in mistakes(row.name, 1):
            text = f"{HEAD}{form[:at]}{name}{form[at + len(row.name) :]}\n"
            found, total = first(text), total + 1
            reported = f"{found.help}" if found is not None else ""
            if row.name not in reported.replace(f"`{name}`", ""):
                wrong.append(f"{name}: {reported}")
            if found is not None and found.edits:
                after = edited(text, found)
                if not errors(after) and stated(after) != stated(f"{HEAD}{form}\n"):
                    astray.append(f"{name}: {after!r}")
    assert total > 300
    assert len(wrong) <= 0.02 * total, "\n".join(wrong)
    assert not astray, "\n".join(astray)


@pytest.mark.parametrize(
    ("typed_as", "intended"),
    [
        ("kl_ccoef", "kl_coef"),
        ("disalbe_tqdm", "disable_tqdm"),
        ("fsdp_forward_prefecth", "fsdp_forward_prefetch"),
        ("mixde_precision_policy", "mixed_precision_policy"),
        ("neftune_noise_alhpa", "neftune_noise_alpha"),
        ("gpu_count", None),  # Known words, so not a misspelt `cpu_count`.
        ("packing_strat", None),  # The abbreviation of another tool's name, not a typing mistake.
    ],
)
def test_a_mistyped_name_of_another_tool(typed_as: str, intended: str | None):
    found = mistyped(typed_as)
    assert (found or "").replace("_", "") == (intended or "").replace("_", "")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ft32", "`fp32` or `tf32`|`tf32` or `fp32`"),
        ("wlora", "lora"),
        ("nam=allow", "nan"),
        ("method grpo { rewards=[accuracy], min_response_length=16 }", "no equivalent"),
        ("strategy fsdp { enable_activation_checkpointing=true }", "checkpointing"),
        ("save { fsdp_min_num_params=0 }", "extra accelerate(fsdp_min_num_params"),
    ],
)
def test_a_near_name_of_another_meaning_gets_no_edit_to_it(line: str, words: str):
    found = first(f"{HEAD}{line}\n")
    assert found is not None
    assert any(one in (found.help or "") for one in words.split("|")), found.help


def is_generic(text: str) -> bool:
    """Whether the help only lists settings, without choosing one."""
    found = next((one for one in checked(text).problems if one.code in ("XP101", "XP102")), None)
    reported = "" if found is None else found.help or ""
    return "xpc list settings" in reported or reported.partition("` has ")[0].strip("`") in schema.CLAUSES


@pytest.mark.slow
@pytest.mark.parametrize("target", stacks.names())
def test_every_argument_of_the_libraries_has_an_answer(target: str):
    """A user may write a trainer's argument, or a key of accelerate's or DeepSpeed's file, as if it were a setting. The
    help then names the right setting, the `extra` block, or the reason why a spec cannot state it.
    """
    stack = stacks.load(target)
    assert stack is not None
    names = {name for config in stack.configs for name in stack.fields(config)} | {*stack.removed, *stack.renamed}
    names |= {name for kind in ("accelerate", "fsdp_config", "parallelism_config") for name in stack.keys(kind)}
    names |= {*stack.launch_keys("deepspeed"), *stack.keys("deepspeed")}
    assert len(names) > 200
    assert [name for name in sorted(names) if is_generic(f"{HEAD}{name} = 1\n")] == []


def test_a_repeated_name_is_compared_with_the_known_names_once(monkeypatch):
    """If the same unknown name is on a hundred lines of a page, it is compared with the known names only once.
    Comparing it for each line would take a second.
    """
    compared = []
    real = misspelt.one_mistake
    monkeypatch.setattr(misspelt, "one_mistake", lambda one, other: compared.append(one) or real(one, other))
    counts = []
    for times in (1, 20):
        mistyped.cache_clear()
        compared.clear()
        assert len(errors(HEAD + "baobin_gradientz = 1\n" * times)) == times
        counts.append(len(compared))
    assert counts[0] == counts[1] > 0
