"""Shows what a quickstart run did: the loss as a plot, and the model's answers before and after.

    python specs/quickstart/show.py OUT [--model FOLDER] [--heldout FILE]

Reads OUT/metrics.jsonl (objects with `step` and `loss`), writes OUT/loss.png, and asks the initial model (default: the
`model` folder next to this script) and the trained one in OUT the held-out questions, with greedy decoding. Exit
status: 0 shown; 1 no plot, because matplotlib is missing; 2 the run wrote nothing to show.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SHOWN = 3
NEW_TOKENS = 16
WIDTH = 34

Row = list[dict[str, str]]


def read_losses(path: str) -> tuple[list[int], list[float]]:
    """Steps and training losses; where a resumed run repeats a step, the later value counts."""
    losses: dict[int, float] = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            entry = json.loads(line)
            if "step" in entry and "loss" in entry:
                losses[int(entry["step"])] = float(entry["loss"])
    steps = sorted(losses)
    return steps, [losses[step] for step in steps]


def smooth(values: list[float]) -> list[float]:
    """Centred moving average over about a fifteenth of the run: no lag behind the raw curve, shorter at both ends."""
    reach = max(1, len(values) // 30)
    windows = (values[max(0, i - reach) : i + reach + 1] for i in range(len(values)))
    return [sum(window) / len(window) for window in windows]


def plot(steps: list[int], losses: list[float], path: str) -> None:
    """The raw loss, thin, and the smoothed one, as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5), dpi=120)
    axes.plot(steps, losses, color="#9bbbe0", linewidth=1, label="loss as logged")
    axes.plot(steps, smooth(losses), color="#1f4e8c", linewidth=2, label="moving average")
    axes.set_xlabel("optimizer step")
    axes.set_ylabel("training loss (nats per token)")
    axes.set_title(f"Quickstart: loss {losses[0]:.3g} to {losses[-1]:.2g} in {steps[-1]:,} steps")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def answers(folder: str, rows: list[Row]) -> list[str]:
    """The model's greedy answer to each row's question, in one left-padded batch."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    prompts = [tokenizer.apply_chat_template(row[:1], tokenize=False, add_generation_prompt=True) for row in rows]
    batch = tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False)
    ids, mask = batch["input_ids"], batch["attention_mask"]
    with torch.no_grad():
        made = model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    said = tokenizer.batch_decode(made[:, ids.shape[1] :], skip_special_tokens=True)
    return [text.strip() for text in said]


def printable(text: str) -> str:
    """A table cell in ASCII, because an untrained model writes anything, even broken UTF-8 and control codes."""
    shown = "".join(c if c.isascii() and c.isprintable() else "?" for c in text)
    return shown if len(shown) <= WIDTH else shown[: WIDTH - 3] + "..."


def table(rows: list[Row], before: list[str], after: list[str]) -> str:
    """Question, answer before and answer after for the first rows of both directions; then the counts of all rows."""
    cells = [("held-out question", "before", "after")]
    cells += [(row[0]["content"], printable(b), printable(a)) for row, b, a in zip(rows[:SHOWN], before, after)]
    widths = [max(len(cell[column]) for cell in cells) for column in range(3)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(cell, widths)).rstrip() for cell in cells]
    lines.insert(1, "  ".join("-" * width for width in widths))
    wanted = [row[1]["content"] for row in rows]
    right = [sum(said == want for said, want in zip(answer, wanted)) for answer in (before, after)]
    lines += ["", f"right answers to {len(rows)} questions that it never saw: {right[0]} before, {right[1]} after"]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Plot, table, count."""
    parser = argparse.ArgumentParser(description="Show a quickstart run: the loss, and answers before and after.")
    parser.add_argument("out", help="the run's output directory")
    parser.add_argument("--model", default=os.path.join(HERE, "model"), help="the model before the run")
    parser.add_argument("--heldout", default=os.path.join(HERE, "heldout.jsonl"), help="questions with their answers")
    options = parser.parse_args(arguments)
    for needed in (
        os.path.join(options.out, "metrics.jsonl"),
        os.path.join(options.out, "config.json"),
        os.path.join(options.model, "config.json"),
        options.heldout,
    ):
        if not os.path.isfile(needed):
            print(f"{needed} is missing: run the quickstart first (make demo)", file=sys.stderr)
            return 2
    steps, losses = read_losses(os.path.join(options.out, "metrics.jsonl"))
    if not steps:
        print(f"{options.out}/metrics.jsonl holds no loss", file=sys.stderr)
        return 2

    status = 0
    image = os.path.join(options.out, "loss.png")
    print(f"loss: {losses[0]:.3f} at step {steps[0]}, {losses[-1]:.3f} at step {steps[-1]}")
    try:
        plot(steps, losses, image)
        print(f"plot: {image}")
    except ModuleNotFoundError as missing:
        if missing.name != "matplotlib":
            raise
        print("no plot: matplotlib is not installed (pip install matplotlib)", file=sys.stderr)
        status = 1
    with open(options.heldout, encoding="utf-8") as lines:
        rows = [json.loads(line)["messages"] for line in lines]
    print()
    print(table(rows, answers(options.model, rows), answers(options.out, rows)))
    return status


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # the libraries' remarks on missing accelerators
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    sys.exit(main())
