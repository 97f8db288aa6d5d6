"""Shows what a quickstart run taught the model: its answers before and after.

    python specs/quickstart/show.py OUT [--model FOLDER] [--heldout FILE]

The held-out questions are put to the initial model (default: the `model` folder next to this script) and to the trained
model in OUT, with greedy decoding. The exit status is 0 if the answers were shown, 2 if the run has not finished.
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
    """Show the table and the counts."""
    parser = argparse.ArgumentParser(description="Show a quickstart run: answers before and after.")
    parser.add_argument("out", help="the run's output directory")
    parser.add_argument("--model", default=os.path.join(HERE, "model"), help="the model before the run")
    parser.add_argument("--heldout", default=os.path.join(HERE, "heldout.jsonl"), help="questions with their answers")
    options = parser.parse_args(arguments)
    for needed in (
        os.path.join(options.out, "config.json"),
        os.path.join(options.model, "config.json"),
        options.heldout,
    ):
        if not os.path.isfile(needed):
            print(f"{needed} is missing: run the quickstart first (make demo)", file=sys.stderr)
            return 2
    with open(options.heldout, encoding="utf-8") as lines:
        rows = [json.loads(line)["messages"] for line in lines]
    print(table(rows, answers(options.model, rows), answers(options.out, rows)))
    return 0


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # hides the libraries' warnings about a missing GPU
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    sys.exit(main())
