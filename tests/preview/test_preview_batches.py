"""The rows that a preview shows are the rows of the batches that TRL's trainer collates: for each method, stack, chat
template and packing strategy.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

import pytest
from emitted import put
from interpreters import OTHERS, methods_of
from method_runs import SETTINGS, Warm
from preview_samples import ROWS
from stacks import payload
from tiers import EACH_STACK, nightly_but
from tiny_runs import lines, spec

from xpc.compiler.language.methods import METHODS
from xpc.compiler.language.model_choices import TEMPLATES
from xpc.compiler.stacks import DEFAULT, STACKS, load

pytestmark = pytest.mark.slow

HERE = os.path.dirname(os.path.abspath(__file__))
IGNORED = -100
OWN_ANSWERS = "distill with the rows' own answers"
SUPERVISED = {
    "chat": ("messages", "method sft", ""),
    "answers": ("messages", "method sft(assistant_only)", ""),
    "text": ("texts", "method sft", ""),
    "completion": ("completions", "method sft(completion_only)", ""),
    "turns": ("talks", "method sft(completion_only)", ""),
    "cut": ("messages", "method sft", "seq=20"),
    "packed": ("messages", "method sft", "packing(isolate=mask)"),
    "wrapped": ("messages", "method sft", "packing(isolate=mask)"),
    "split": ("messages", "method sft", "seq=20 packing(isolate=mask)"),
    "answers-packed": ("messages", "method sft(assistant_only)", "packing(isolate=mask)"),
    "answers-wrapped": ("messages", "method sft(assistant_only)", "packing(isolate=mask)"),
    "answers-split": ("messages", "method sft(assistant_only)", "seq=20 packing(isolate=mask)"),
    "completion-wrapped": ("completions", "method sft(completion_only)", "packing(isolate=mask)"),
    "turns-split": ("talks", "method sft(completion_only)", "seq=20 packing(isolate=mask)"),
}
"""Runs with sft. Each has its data, its method, and its batch settings."""
PART = r"(\d+) \((?:tokens (\d+) to (\d+)|\d+ tokens)\)"
"""Matches a row in the printed name of a packed sequence, `3 (12 tokens)`, or a part of a row, `3 (tokens 1 to 20)`."""
STRATEGIES = {"wrapped": "wrapped", "split": "bfd_split"}
"""Packing strategies that xpc compiles only with flash attention. The test writes them directly into the bundle,
because preparing rows needs no flash attention.
"""


def lacks(target: str, name: str) -> bool:
    """Whether a case of ``SUPERVISED`` needs something that the stack cannot do on a CPU."""
    _, method, batch = SUPERVISED[name]
    stack = load(target)
    split = name.endswith("split") and STRATEGIES["split"] not in stack.packing
    masks = "assistant_only" in method and not stack.facts.assistant_only_loss
    return split or masks or ("packing" in batch and not stack.facts.isolate_mask)


def both(warm: Warm, name: str, text: str, target: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a pair: the preview of all rows of a spec, and the batches that its run collates."""
    bundle = warm.compiled(text, name)
    _write_strategy(bundle, STRATEGIES.get(name.rpartition("-")[2]))
    answers, cwd = [], os.path.join(warm.location, f"{name}.run")
    os.mkdir(cwd)
    for program, words in (("prepared.py", [str(ROWS)]), ("collated.py", [])):
        out = os.path.join(warm.location, f"{name}.{program}.json")
        done = warm.of(target).run(bundle, cwd, bundle, out, *words, program=os.path.join(HERE, program))
        assert done["status"] == [0], f"{done['out'][-2000:]}\n{done['err'][-4000:]}"
        with open(out, encoding="utf-8") as handle:
            answers.append(json.load(handle))
    return answers[0], answers[1]


def _write_strategy(bundle: str, strategy: str | None) -> None:
    if strategy is not None:
        plan = payload(bundle)
        plan["arguments"]["packing_strategy"] = strategy
        put(bundle, {"trainer_args.json": json.dumps(plan)})


def previewed(answer: dict[str, Any]) -> list[tuple[list[int], list[bool]]]:
    """For each sequence in the previewed rows, a pair: its token ids, and its loss mask."""
    return [
        ([token[0] for token in one["tokens"]], [bool(token[2]) for token in one["tokens"]])
        for row in answer["rows"]
        for one in row["sequences"]
    ]


def kept(ids: list[int], mask: list[int], marks: list[Any]) -> tuple[list[int], list[bool]]:
    locations = [at for at, one in enumerate(mask) if one]
    return [ids[at] for at in locations], [bool(marks[at]) for at in locations]


def collated(batches: list[dict[str, Any]], method: str) -> list[tuple[list[int], list[bool]]]:
    """For each sequence that the trainer collated, a pair: its token ids without padding, and its loss mask."""
    out = []
    for one in batches:
        batch = one["batch"]
        if "prompts" in batch and method != OWN_ANSWERS:
            out += [kept(ids, mask, [0] * len(ids)) for ids, mask in
                    zip(batch["prompts"], batch["prompt_attention_mask"], strict=True)]  # fmt: skip
        elif "prompt_ids" in batch:
            out += [kept(ids, mask, [0] * len(ids)) for ids, mask in
                    zip(batch["prompt_ids"], batch["prompt_mask"], strict=True)]  # fmt: skip
        elif "completion_labels" in batch or "chosen_labels" in batch:
            for name in ("completion", "chosen", "rejected"):
                if f"{name}_labels" in batch:
                    marks = [[label != IGNORED for label in row] for row in batch[f"{name}_labels"]]
                    out += list(map(kept, batch[f"{name}_input_ids"], batch[f"{name}_attention_mask"], marks))
        elif "input_ids_chosen" in batch:
            for name in ("chosen", "rejected"):
                blank = [[0] * len(row) for row in batch[f"input_ids_{name}"]]
                out += list(map(kept, batch[f"input_ids_{name}"], batch[f"attention_mask_{name}"], blank))
        # before trl 1.0, dpo truncates in the forward pass, so its rows are read from the model's input
        elif "prompt_input_ids" in batch:
            for inputs in one["inputs"][:1]:
                prompts = [sum(row) for row in batch["prompt_attention_mask"]] * 2
                for ids, mask, prompt in zip(inputs["input_ids"], inputs["attention_mask"], prompts, strict=True):
                    tokens = [ids[at] for at, there in enumerate(mask) if there]
                    out.append((tokens, [at >= prompt for at in range(len(tokens))]))
        elif "completion_mask" in batch:
            out += list(map(kept, batch["input_ids"], batch["attention_mask"], batch["completion_mask"]))
        elif "labels" in batch:
            masks = batch.get("attention_mask") or [[1] * len(row) for row in batch["input_ids"]]
            marks = [[label != IGNORED for label in row] for row in batch["labels"]]
            out += list(map(kept, batch["input_ids"], masks, marks))
        else:
            blank = [[0] * len(row) for row in batch["input_ids"]]
            out += list(map(kept, batch["input_ids"], batch["attention_mask"], blank))
    assert out, f"{method}: {batches[0]['batch'].keys() if batches else 'no batch'}"
    return out


def written(method: str, target: str, data: str, *more: str, batch: str = "", rows: int = ROWS) -> str:
    generates = METHODS[method].generates
    sizes = f"gbs={rows} micro=4" if generates else f"gbs={rows} micro=2" + ("" if "seq=" in batch else " seq=64")
    return spec(*more, data=f'"{data}.jsonl"', length="1 steps", target=target, sizes=sizes, batch=f" {batch}")


MADE = [(target, method) for target in STACKS for method in (METHODS if target == DEFAULT else methods_of(target))]
DATA = {
    "sft": "messages", "dpo": "preferences", "orpo": "preferences", "reward": "preferences", "kto": "judged",
    "cpo": "preferences", "grpo": "prompts", "rloo": "prompts", "distill": "prompts",
}  # fmt: skip


ALIKE = ("cpo", "rloo")
"""cpo and rloo: TRL prepares their rows in the same way as those of orpo and grpo."""


@pytest.mark.parametrize(("target", "method"), nightly_but(MADE, lambda one: one[0] == DEFAULT and one[1] not in ALIKE))
def test_every_method_shows_the_rows_of_its_batches(warm: Warm, target: str, method: str) -> None:
    text = written(method, target, DATA[method], f"method {method}{SETTINGS.get(method, '')}")
    answer, batches = both(warm, f"{target}-{method}", text, target)
    shown, real = previewed(answer), collated(batches, method)
    assert not [one for one in real if one not in shown]
    if not METHODS[method].generates:
        assert sorted(shown) == sorted(real)


OWN = f"(lmbda=0, {SETTINGS['distill'][1:]}"
CUT = [(one, method) for one in OTHERS for method in ("dpo", "grpo", "rloo") if method in methods_of(one)]
DISTILLED = [
    *((target, data, SETTINGS["distill"]) for target in STACKS for data in ("completions", "talks")),
    *((target, data, OWN) for target in OTHERS for data in ("completions", "talks")),
]


@pytest.mark.parametrize(("target", "method"), nightly_but(CUT, lambda one: one == (OTHERS[0], "grpo")))
def test_the_end_of_a_long_prompt_is_kept(warm: Warm, target: str, method: str) -> None:
    question = [{"role": "user", "content": "word " * 40 + "What is 1+1?"}]
    answers = {one: [{"role": "assistant", "content": text}] for one, text in (("chosen", "2"), ("rejected", "3"))}
    row = {"prompt": question, **(answers if method == "dpo" else {})}
    put(warm.location, {"long_questions.jsonl": lines([{**row, "colour": "red", "row": 0}] * ROWS)})
    settings = SETTINGS.get(method, "()").replace("even", "short").removesuffix(")").removeprefix("(")
    written_as = f"method {method}({settings}{', ' if settings else ''}max_prompt=20)"
    text = written(method, target, "long_questions", written_as)
    answer, batches = both(warm, f"{target}-{method}-long", text, target)
    assert not [one for one in collated(batches, method) if one not in previewed(answer)]
    shown = ["".join(token[1] for token in one["tokens"]) for one in answer["rows"][0]["sequences"]]
    assert all("What is 1+1?<|im_end|><|im_start|>assistant" in one for one in shown), shown
    assert [len(one["cut"]["start"]) > 20 for one in answer["rows"][0]["sequences"]] == [True] * len(shown)
    found = {one["code"] for one in answer["rows"][0]["verdicts"]}
    assert found == {"XP596"}


@pytest.mark.parametrize(
    ("target", "data", "settings"), nightly_but(DISTILLED, lambda one: one[0] == OTHERS[0] and one[2] == OWN)
)
def test_every_form_of_distillation_shows_the_trained_rows(warm: Warm, target: str, data: str, settings: str) -> None:
    """If the student generates all answers, no answer of the rows is trained on, so a preview shows only the prompts.
    With `lmbda = 0`, the rows' answers are trained on and shown.
    """
    own = settings == OWN
    more = ["data(format=prompt_completion)"] if own else []
    text = written("distill", target, data, f"method distill{settings}", *more)
    answer, batches = both(warm, f"{target}-distill-{data}-{'own' if own else 'generated'}", text, target)
    shown, real = previewed(answer), collated(batches, OWN_ANSWERS if own else "distill")
    assert not [one for one in [*shown, *real] if one not in shown or one not in real]
    assert answer["bears_loss"] == own
    assert all(any(learned) == own and not all(learned) for _, learned in shown)


def test_rows_are_prepared_without_selective_checkpointing(warm: Warm) -> None:
    """trl refuses `selective` without checkpointing, which needs a model."""
    text = written("sft", DEFAULT, "messages").replace("checkpointing=false", "checkpointing(selective)")
    answer, batches = both(warm, "selective", text, DEFAULT)
    assert sorted(previewed(answer)) == sorted(collated(batches, "sft"))


BY_ANOTHER = ("chat", "answers-packed", "answers-wrapped", "turns-split")
"""Cases that `make test` leaves out and `make slow` tries. `chat` is the same run as in the test above. Each other case
combines a kind of row and a kind of packing, which `make test` tries separately.
"""


@pytest.mark.parametrize("target", EACH_STACK)
@pytest.mark.parametrize("name", nightly_but(SUPERVISED, lambda name: name not in BY_ANOTHER))
def test_every_kind_of_row_and_packing_shows_the_trained_rows(warm: Warm, target: str, name: str) -> None:
    data, method, batch = SUPERVISED[name]
    if lacks(target, name):
        pytest.skip("the stack's trl cannot do this on a CPU")
    answer, batches = both(warm, f"{target}-{name}", written("sft", target, data, method, batch=batch), target)
    shown, real = previewed(answer), collated(batches, name)
    if "packing" not in batch:
        assert sorted(shown) == sorted(real)
        return
    full = {row["row"]: [token[:3] for one in row["sequences"] for token in one["tokens"]] for row in answer["rows"]}
    packs = [pack for micro in answer["order"][0] for pack in micro]
    parts = [part for pack in packs for part in re.findall(PART, pack)]
    joined = [full[int(row)][int(start or 0) : int(end or 1000)] for row, start, end in parts]
    assert [token for ids, _ in real for token in ids] == [token[0] for part in joined for token in part]
    marks = [mark for _, marks in real for mark in marks]
    assert marks == [bool(token[2]) for part in joined for token in part]


@pytest.mark.parametrize("target", EACH_STACK)
def test_order_is_that_of_the_trainer(warm: Warm, target: str) -> None:
    answer, batches = both(warm, f"{target}-order", written("sft", target, "messages", "method sft"), target)
    ids = [ids for ids, _ in previewed(answer)]
    expected = [ids[int(row)] for micro in answer["order"][0] for row in micro]
    assert [ids for ids, _ in collated(batches, "sft")] == expected


MIXED_PART = r"(\w+\.jsonl:\d+)(?: \((?:tokens (\d+) to (\d+)|\d+ tokens)\))?"


@pytest.mark.parametrize("batch", ["", "packing(isolate=mask)"])
def test_a_mixture_of_shapes_is_counted_in_full_and_its_rows_are_named(warm: Warm, batch: str) -> None:
    text = written("sft", DEFAULT, "messages", "method sft(assistant_only)", batch=batch, rows=2 * ROWS)
    sources = "".join(f'  "{name}.jsonl"\n' for name in ("messages", "completions"))
    text = text.replace('on "messages.jsonl"', "on mix") + f"data mix {{\n{sources}}}\n"
    answer, batches = both(warm, f"mixed{len(batch)}", text, DEFAULT)
    full = {
        f"{row['source']}:{row['row']}": [token[0] for one in row["sequences"] for token in one["tokens"]]
        for row in answer["rows"]
    }
    assert answer["counts"]["rows"] == len(full) == 2 * ROWS
    assert answer["counts"]["tokens"] == sum(map(len, full.values()))
    assert answer["counts"]["quantiles"]["1.0"] == max(map(len, full.values()))
    shown = [name for micro in answer["order"][0] for name in micro]
    parts = [full[row][int(start or 0) : int(end or 1000)]
             for one in shown for row, start, end in re.findall(MIXED_PART, one)]  # fmt: skip
    trained = [token for ids, _ in collated(batches, "sft") for token in ids]
    assert [token for part in parts for token in part] == trained


DAILY = ("gemma3", "llama3.1")
"""The templates that `make test` previews. Rows of every template are prepared in the tests of mapped rows
(tests/proof/training/rows/test_mapped_rows.py).
"""


@pytest.mark.parametrize("target", EACH_STACK)
@pytest.mark.parametrize("template", nightly_but(sorted(TEMPLATES), DAILY.__contains__))
def test_every_built_in_template_shows_the_trained_rows(warm: Warm, template: str, target: str) -> None:
    more = (f"model(chat_template={template})", "method sft")
    text = written("sft", target, "messages", *more, batch="seq=256").replace('"tiny"', '"begun"')
    answer, batches = both(warm, f"template-{target}-{template}", text, target)
    assert sorted(previewed(answer)) == sorted(collated(batches, template))
