"""Compute the result of a run from its logs: best values, measurements of all starts, utilisation, model card.

The trainer of the bundle calls these functions at the end of a run. `xpc report` calls them, too. Therefore this file
imports no other module of the bundle, and only the standard library (and huggingface_hub to fetch a card).
"""

import json
import os
import re
import runpy
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import zip_longest
from math import isnan
from typing import Any

WORDS = {"loss": "loss", "reward": "reward", "rewards/margins": "margin", "margin": "margin", "accuracy": "accuracy"}
"""Maps each training metric that is printed at the end to the printed word."""
HIGHER = ("reward", "rewards/margins", "rewards/accuracies", "margin", "accuracy")
"""Metrics for which a higher value is better. For all other metrics, such as a loss, a lower value is better."""
PICTURE = "picture.svg"
LARGEST_CARD = 2**16
"""At most this many characters of the card (README.md) of a model or dataset are read."""
CARD_SECONDS = 5
"""The hub must answer the request for a card within this many seconds."""
IMAGE_QUESTION = (
    '{"role": "user", "content": [{"type": "image", "path": "image.png"}, {"type": "text", "text": "What is this?"}]}]'
)
RATED = '{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi!"}]'
NO_RESULT = ("_min_reward", "_mean_reward", "_max_reward", "_token_accuracy")
"""Endings of metrics that do not count as results. They are a reward model's scores, of which no value is the best, and
the share of tokens that a model predicts correctly."""
COUNTS = ("waits", "saves", "saved_bytes", "real_tokens", "padded_tokens")
Result = dict[str, float]


def results(events: Iterable[Mapping[str, Any]], rewarded: bool) -> dict[str, Result]:
    """First, last, lowest, highest and best value of losses, rewards, margins and accuracies, also in evaluations
    (``eval_loss``).

    If ``rewarded``, the loss is omitted, because it is around zero at every step. If there are several reward
    functions, the result of their sum comes first, and then the result of each.
    """
    values: dict[str, list[tuple[float, int]]] = {}
    functions: dict[str, list[tuple[float, int]]] = {}
    for event in events:
        for key, value in event.items():
            evaluated = key.startswith("eval_") and key.endswith(("_loss", *(f"_{one}" for one in HIGHER)))
            evaluated = evaluated and not key.endswith(NO_RESULT)
            kept = values if evaluated or key in ("loss", *HIGHER) else functions if _function(key) else None
            if kept is not None and (number := _number(value)) is not None:
                kept.setdefault(key, []).append((number, event["step"]))
    if rewarded and "reward" in values:
        values = {key: each for key, each in values.items() if not key.endswith("loss")}
    if len({_function(key) for key in functions}) > 1:
        values |= functions
    out: dict[str, Result] = {}
    for key, each in values.items():
        known = [one for one in each if not isnan(one[0])] or each
        low, high = min(known, key=lambda one: one[0]), max(known, key=lambda one: one[0])
        best = high if key.endswith(HIGHER) or key in functions else low
        out[key] = {
            "first": each[0][0], "last": each[-1][0], "count": len(each), "lowest": low[0], "lowest_step": low[1],
            "highest": high[0], "highest_step": high[1], "best": best[0], "best_step": best[1],
        }  # fmt: skip
    return out


def _function(key: str) -> str:
    """The name of the reward function in a metric ``rewards/NAME/mean`` of trl; empty for any other metric."""
    before, _, name = key.partition("rewards/")
    known = name.endswith("/mean") and (not before or before.startswith("eval_"))
    return name.removesuffix("/mean") if known else ""


def _number(value: object) -> float | None:
    """A number of metrics.jsonl, where nan and infinity are strings; None for any other value."""
    try:
        return None if isinstance(value, bool) or not isinstance(value, int | float | str) else float(value)
    except (ValueError, OverflowError):
        return None


def lines(found: Mapping[str, Result]) -> str:
    """The lines about the metrics of training for the terminal. Each reward function has its own line."""
    functions = {key: f"  {_function(key)}" for key in found if not key.startswith("eval_") and _function(key)}
    text = ""
    for key, word in {**WORDS, **functions}.items():
        if one := found.get(key):
            text += f"{word:<10} {one['first']:.4f}" + (f" -> {one['last']:.4f}" if one["count"] > 1 else "")
            if one["count"] > 2:
                text += f"  (lowest {one['lowest']:.4f} at step {one['lowest_step']}, "
                text += f"highest {one['highest']:.4f} at step {one['highest_step']})"
            text += "\n"
    return text


def deciding(found: Mapping[str, object]) -> str:
    """The metric by which runs with these results are compared, such as ``eval_loss``; empty if there is none."""
    return next((one for one in [*(key for key in found if key.startswith("eval_")), *WORDS] if one in found), "")


def winner(best: Mapping[str, tuple[str, Result]]) -> str:
    """The name of the best of several runs; empty if they cannot be compared. ``best`` maps the name of each run to the
    metric that `deciding` returns, and its result.
    """
    keys = {key for key, _ in best.values()}
    if len(keys) != 1 or len(best) < 2:
        return ""
    known = [name for name in best if not isnan(best[name][1]["best"])] or list(best)
    return (max if keys.pop().endswith(HIGHER) else min)(known, key=lambda name: best[name][1]["best"])


def overview(members: str, statuses: Sequence[str]) -> str:
    """A line for each member of a sweep. It has the best value of the metric by which the runs are compared.

    ``members`` is the folder of the bundles. ``statuses`` is a flat list: a member's name, the exit status of its
    launch, the next member's name, and so on.
    """
    ended = list(zip(statuses[::2], statuses[1::2], strict=True))
    best: dict[str, tuple[str, Result]] = {}
    places = {}
    for name, status in ended:
        try:
            with open(os.path.join(members, name, "trainer_args.json"), encoding="utf-8") as handle:
                places[name] = str(json.load(handle)["arguments"]["output_dir"])
            with open(os.path.join(places[name], "summary.json"), encoding="utf-8") as handle:
                found = json.load(handle)["results"]
        except (OSError, ValueError, LookupError, TypeError):
            continue
        if status == "0" and (key := deciding(found)):
            best[name] = key, {part: float(value) for part, value in found[key].items()}
    wins = winner(best)
    text, width = "", max((len(name) for name, _ in ended), default=0)
    for name, status in ended:
        what = f"failed with exit status {status}" if status != "0" else "trained"
        if name in best:
            key, one = best[name]
            what = f"{key} {one['best']:.4f} at step {one['best_step']:.0f}, last {one['last']:.4f}"
        text += f"{name:<{width}}  {what}  {places.get(name, '')}{'  (best)' * (name == wins)}".rstrip() + "\n"
    return text


def totals(measured: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The measurements of all starts together, from the lines of measured.jsonl: the sums of times and counts, and the
    largest values of memory. ``peaks`` has the peak of each process.
    """
    out: dict[str, Any] = {"starts": sum("started" in one for one in measured)}
    out |= {"seconds": {}, "memory": {}, "peaks": {}}
    counted = dict.fromkeys(COUNTS, 0.0)
    for one, after in zip(measured, [*measured, {"started": ""}][1:], strict=True):
        if "memory" not in one or "started" not in after:
            continue  # only the last line of each start counts: it contains the values of the earlier lines
        for name, spent in one["seconds"].items():
            out["seconds"][name] = round(out["seconds"].get(name, 0.0) + spent, 3)
        for phase, kinds in one["memory"].items():
            known = out["memory"].setdefault(phase, {})
            known.update({kind: max(size, known.get(kind, 0)) for kind, size in kinds.items()})
        for kind, sizes in one.get("peaks", {}).items():
            both = zip_longest(out["peaks"].get(kind, []), sizes, fillvalue=0)
            out["peaks"][kind] = [max(pair) for pair in both]
        for name in COUNTS:
            counted[name] += one[name]
    real, padded = counted.pop("real_tokens"), counted.pop("padded_tokens")
    out["padding"] = round(1 - real / padded, 4) if padded else None
    return out | {"waits": round(counted["waits"], 3), "saves": int(counted["saves"]),
                  "saved_bytes": int(counted["saved_bytes"])}  # fmt: skip


def peak_allocated(measured: Mapping[str, Any]) -> int | None:
    """The largest ``allocated`` memory of a phase, from ``totals``; None on a CPU."""
    return max((one.get("allocated", 0) for one in measured["memory"].values()), default=0) or None


def utilisation(
    flops: Mapping[str, Any] | None, tokens: float | None, sequences: int, seconds: float, world: int
) -> dict[str, float | None] | None:
    """Model FLOPs per second of a process, and their share of its GPU's peak. None if a value is unknown.

    ``flops`` is ``run.flops`` of trainer_args.json: ``token``, the operations per token; ``length``, the operations per
    token and per token of its sequence (attention); and the GPU's ``peak``. FLOPs per second are tokens x (``token`` +
    ``length`` x mean tokens of a sequence) / (seconds of training x processes). Recomputed activations do not count
    (Chowdhery et al. 2022, arXiv:2204.02311, appendix B).
    """
    if not flops or not tokens or not sequences or seconds <= 0:
        return None
    speed = tokens * (flops["token"] + flops["length"] * tokens / sequences) / seconds / world
    return {"flops_per_second": round(speed), "share": round(speed / flops["peak"], 4) if flops["peak"] else None}


def draw(folder: str, say: Callable[[str], object]) -> str:
    """Draw the curves of the run in ``folder`` with picture.py, which is next to this file, and return the picture's
    path. If drawing fails, print the reason with ``say`` and return "", because a picture must not make a run fail.
    """
    try:
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "picture.py")
        return str(runpy.run_path(program)["write"](folder))
    except Exception as error:
        say(f"no picture was drawn: {str(error).partition(chr(10))[0]}")
        return ""


def weights(folder: str, base: str | None, adapters: Mapping[str, Any] | None) -> str:
    """The summary's lines about weights: the folder of the final weights (for adapters, also the name of their base),
    and the folder of merged weights, if these are saved.
    """
    place = f"{folder}  (adapters; their base is {base})" if base else folder
    return place + (f"\nmerged     {os.path.join(folder, 'merged')}" if adapters and adapters.get("merge") else "")


def ending(
    facts: Mapping[str, Any], results: str, adapters: Mapping[str, object] | None, picture: str, metrics: str,
    use: Sequence[str], bundle: str,
) -> str:  # fmt: skip
    """The lines that a run prints at its end.

    ``facts`` is the content of summary.json, ``results`` the lines of the metrics, ``adapters`` as in `weights`.
    ``picture`` and ``metrics`` are paths of files (``picture`` may be ""), ``use`` has the lines of `usage`, and
    ``bundle`` is the path of the bundle's folder.
    """
    folder, tokens = facts["weights"], facts["tokens"]
    lines = [
        f"\ndone       {facts['steps']} steps, {facts['epochs']} epochs in {timedelta(seconds=int(facts['seconds']))}",
        f"{results}seen       {facts['sequences']:,} sequences" + ("" if tokens is None else f", {tokens:,.0f} tokens"),
        f"weights    {weights(folder, facts['adapter_of'], adapters)}",
        *([f"picture    {picture}"] if picture else []),
        f"metrics    {metrics}",
        "use        " + "\n           ".join(use),
        f"verify     xpc verify {shlex.quote(bundle)} --run {shlex.quote(os.path.relpath(folder))}",
    ]
    return "\n".join(lines)


def usage(
    scores: bool, chat: bool, settings: Mapping[str, object], system: str | None, folder: str, written: str = ""
) -> list[str]:
    """Lines of Python that load the weights in ``folder`` and use them. For adapters, they also load the base, with
    these ``settings`` of its configuration. If the folder has a processor, the model reads images. ``system`` is the
    spec's system prompt, and ``written`` the folder's name in these lines.
    """
    images = os.path.exists(os.path.join(folder, "processor_config.json"))
    turn = {"role": "system", "content": [{"type": "text", "text": system}] if images else system}
    first = f"[{json.dumps(turn, ensure_ascii=not str(system).isprintable())}, " if system else "["
    if images:
        task, call = "image-text-to-text", f"text={first}{IMAGE_QUESTION}, max_new_tokens=64"
    else:
        task = "text-classification" if scores else "text-generation"
        call = first + '{"role": "user", "content": "Hello"}]' if chat and not scores else '"Hello"'
        # otherwise a pipeline passes the score through a sigmoid
        call += ', function_to_apply="none"' if scores else ", max_new_tokens=64"
    rendering = []
    if scores and chat:
        rendering = [f"text = ask.tokenizer.apply_chat_template({first}{RATED}, tokenize=False)"]
        call = 'text, add_special_tokens=False, function_to_apply="none"'
    answer = '["score"]' if scores else '["generated_text"]' + '[-1]["content"]' * (chat or images)
    return [*_loading(folder, written or folder, task, scores, settings), *rendering, f"print(ask({call})[0]{answer})"]


def _loading(folder: str, written: str, task: str, scores: bool, settings: Mapping[str, object]) -> list[str]:
    """The lines of Python that load the weights in ``folder`` as the pipeline ``ask``.

    Adapters are loaded by peft. If a pipeline loaded them, it would use the base's tokenizer, which may have another
    chat template and fewer tokens, and the magnitudes of DoRA would be lost (transformers 5.23).
    """
    place, adapters = json.dumps(written, ensure_ascii=not written.isprintable()), {}
    with suppress(OSError, ValueError), open(os.path.join(folder, "adapter_config.json"), encoding="utf-8") as file:
        adapters = json.load(file)
    if not adapters:
        return ["from transformers import pipeline", f'ask = pipeline("{task}", {place})']
    images, labels = task.startswith("image"), ", num_labels=1" * scores
    loader = "SequenceClassification" if scores else "ImageTextToText" if images else "CausalLM"
    reader = "Processor" if images else "Tokenizer"
    # get_base_model() keeps the adapters in the layers; a pipeline would log that a PeftModel is not supported
    ask = f'ask = pipeline("{task}", model.get_base_model(), {reader.lower()}=Auto{reader}.from_pretrained({place}))'
    bits = settings.get("quantization_config")
    rounded = f", quantization_config={bits}" if bits else ""
    if not images and all(value is bits for value in settings.values()):
        return [
            f"from peft import AutoPeftModelFor{loader}", "from transformers import AutoTokenizer, pipeline",
            f"model = AutoPeftModelFor{loader}.from_pretrained({place}{labels}{rounded})", ask,
        ]  # fmt: skip
    at = f", revision={json.dumps(adapters['revision'])}" if adapters.get("revision") else ""
    base = json.dumps(adapters["base_model_name_or_path"]) + at
    return [
        "from peft import PeftModel",
        f"from transformers import AutoConfig, AutoModelFor{loader}, Auto{reader}, pipeline",
        f"config = AutoConfig.from_pretrained({base}{labels})",
        *(f"config.{name} = {value!r}" for name, value in settings.items() if value is not bits),
        f"base = AutoModelFor{loader}.from_pretrained({base}, config=config{rounded})",
        f"model = PeftModel.from_pretrained(base, {place})", ask,
    ]  # fmt: skip


def complete_cards(
    folder: str, facts: Mapping[str, Any], bundle: str, sources: Sequence[Mapping[str, object]], written: str,
    use: Callable[[str, str], list[str]],
) -> None:  # fmt: skip
    """Append four parts to the model card, and to the card of merged weights: the picture, the results of summary.json,
    the licences of the ``sources`` (model and data of trainer_args.json), and the lines that ``use`` returns. Raises
    OSError.

    ``written`` is the folder's name in the card; ``use`` is `usage` for this run.
    """
    cards = {one["id"] or one["path"]: _card_of(one, bundle) for one in sources}
    licences = ["", "## Licences", "", "| source | licence |", "|---|---|"]
    for name, card in cards.items():
        known = licence(card) or "its README.md names none" if card else "unknown: its README.md was not found"
        licences.append(f"| `{name}` | {known} |")
    compiled = shlex.quote(os.path.basename(bundle))
    verify = f"`xpc verify {compiled} --run DIR` compares this folder, DIR, with its bundle."
    for below, up in (("", ""), ("merged", "../")):
        if os.path.isfile(path := os.path.join(folder, below, "README.md")):
            shown = [f"![the curves of the run]({up}{PICTURE})", ""] * os.path.isfile(os.path.join(folder, PICTURE))
            lines = use(os.path.dirname(path), os.path.join(written, below).rstrip("/"))
            parts = [*shown, *_rows(facts), *licences, "", "## Use", "", "```python", *lines, "```", "", verify, ""]
            with open(path, "a", encoding="utf-8") as handle:
                handle.write("\n".join(["", "## Result", "", *parts]))


def _rows(facts: Mapping[str, Any]) -> list[str]:
    """The results as lines of Markdown."""
    rows = []
    for key, each in facts["results"].items():
        one = {name: float(value) for name, value in each.items()}
        best = f"{one['best']:.4f} (step {one['best_step']:,.0f})"
        rows.append(f"| `{key}` | {one['first']:.4f} | {best} | {one['last']:.4f} |")
    head = ["| metric | first | best | last |", "|---|---|---|---|", *rows, ""] if rows else []
    tokens = "" if facts["tokens"] is None else f", {facts['tokens']:,.0f} tokens"
    starts = f" in {facts['measured']['starts']} starts" if facts["measured"]["starts"] > 1 else ""
    return [
        *head,
        f"{facts['steps']:,} steps, {facts['sequences']:,} sequences{tokens} in {facts['seconds']:,.0f} s{starts}.",
    ]


def _card_of(source: Mapping[str, Any], bundle: str) -> str | None:
    """The README.md of a model or dataset: from its local folder or the hub's cache, or fetched. None if missing."""
    if source["id"] is None:
        roots = [os.environ.get("XPC_DATA_ROOT"), os.path.dirname(bundle), os.getcwd()]
        places = [os.path.join(root, source["path"]) for root in roots if root]
        folders = [one if os.path.isdir(one) else os.path.dirname(one) for one in places if os.path.exists(one)]
        card = os.path.join(folders[0], "README.md") if folders else ""
        return card if os.path.isfile(card) else None
    from huggingface_hub import hf_hub_download

    kind = "dataset" if "split" in source else "model"
    with suppress(Exception):
        # a run must not fail if the network is down or the repository has no README.md
        return str(hf_hub_download(source["id"], "README.md", repo_type=kind, revision=source["revision"],
                                   etag_timeout=CARD_SECONDS))  # fmt: skip
    return None


def licence(card: str) -> str | None:
    """The licence in the metadata of a card (on the hub: the keys `license` and `license_name`), or None."""
    if not os.path.isfile(card):
        return None
    with open(card, encoding="utf-8", errors="replace") as handle:
        head = handle.read(LARGEST_CARD)
    found = re.match(r"---\s*\n(.*?)\n---\s*(?:\n|\Z)", head, re.S)
    if found is None:
        return None
    lines = dict(re.findall(r"^(license|license_name):[ \t]*['\"]?([\w.+-]{1,60})['\"]?[ \t]*$", found[1], re.M))
    return lines.get("license_name") or lines.get("license")


if __name__ == "__main__":  # a sweep's launch.sh calls this: result.py FOLDER NAME STATUS NAME STATUS ...
    print(overview(sys.argv[1], sys.argv[2:]), end="")
