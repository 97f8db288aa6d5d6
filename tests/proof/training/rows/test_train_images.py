"""Rows with images: bundles train a tiny Qwen2.5-VL. The tests look at the batches and the saved files."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny_vision

from xpc.compiler.cli import main

pytestmark = pytest.mark.slow

COLOURS = {"red": (255, 0, 0), "blue": (0, 0, 255)}
SIZES = {"red": (84, 56), "blue": (112, 112)}
TOKENS = {"red": 3 * 2, "blue": 4 * 4}
"""Maps each image to its number of tokens: one for every 28 x 28 pixels."""


def row(question: str, *colours: str) -> dict[str, Any]:
    answer = {"role": "assistant", "content": f"It is {' and '.join(colours) or 'red'}"}
    turns = [{"role": "user", "content": question}, answer]
    return {"messages": turns, "images": [f"pictures/{one}.png" for one in colours]}


def pair(prompt: object, chosen: str, rejected: object, *colours: str) -> dict[str, Any]:
    images = [f"pictures/{one}.png" for one in colours]
    return {"prompt": prompt, "chosen": chosen, "rejected": rejected, "images": images}


PAIRS = [
    pair("Which colour is this?", "It is red", "It is blue, green", "red"),
    pair([{"role": "user", "content": "<image>Which?"}], "Blue", [{"role": "assistant", "content": "Red"}], "blue"),
    pair("Which colour is red?", "Red", "Blue"),
    pair("This <image> and this <image>?", "It is red and blue", "It is green", "red", "blue"),
] * 3
ROWS = [
    row("Which colour is this?", "red"),
    row("<image>Which colour?", "blue"),
    row("Which colour is red?"),
    row("This <image> and this <image>?", "red", "blue"),
] * 3


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny model, images and rows. If torchvision cannot be loaded, tests that use this fixture are
    skipped.
    """
    if why := tiny_vision.missing():
        pytest.skip(f"torchvision cannot be loaded here: {why}")
    from PIL import Image

    folder = tmp_path_factory.mktemp("images")
    model = [tiny_vision.python(), tiny_vision.__file__, str(folder / "model")]
    subprocess.run(model, env=tiny_vision.environment(), check=True)
    (folder / "pictures").mkdir()
    for name, colour in COLOURS.items():
        Image.new("RGB", SIZES[name], colour).save(folder / "pictures" / f"{name}.png")
    for name, rows in (("rows", ROWS), ("pairs", PAIRS)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    return folder


def trained(location: Path, name: str, *lines: str, data: str = "rows", hardware: str = "cpu", micro: int = 2) -> str:
    """Compile a spec and launch its bundle; returns the run's output."""
    text = f'xpc 1\ntrain "model" on "{data}.jsonl" for 2 steps\nhardware {hardware}\n'
    text += f"batch gbs=4 micro={micro} seq=1024\ntrack none(every=1)\n"
    text += f'optimizer adamw(lr=1e-2)\nsave "out/{name}" every=1\n' + "\n".join(lines) + "\n"
    spec = location / f"{name}.xp"
    spec.write_text(text, encoding="utf-8")
    assert main(["compile", str(spec), "-o", str(location / f"{name}.bundle")]) == 0
    return launched(location, name)


def launched(location: Path, name: str) -> str:
    """Launch a bundle; returns the run's output."""
    environment = {**tiny_vision.environment(), "PYTHON": tiny_vision.python()}
    done = subprocess.run(
        [location / f"{name}.bundle" / "launch.sh"], cwd=location, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "missing keys" not in done.stdout + done.stderr
    return done.stdout


@pytest.mark.nightly
def test_an_image_that_changed_after_the_compilation_stops_the_run(location: Path) -> None:
    """Before the first step, the run compares an image with the digest in the bundle, and stops if it differs. When the
    old image is back, the same run trains.
    """
    from PIL import Image

    path = location / "pictures" / "red.png"
    data = path.read_bytes()
    trained(location, "changed")
    Image.new("RGB", SIZES["red"], COLOURS["blue"]).save(path)
    shutil.rmtree(location / "out" / "changed")
    bundle = location / "changed.bundle"
    environment = {**tiny_vision.environment(), "PYTHON": tiny_vision.python()}
    command = {
        "args": [bundle / "launch.sh"],
        "cwd": location,
        "env": environment,
        "capture_output": True,
        "text": True,
    }
    stopped = subprocess.run(**command, check=False)
    assert stopped.returncode != 0
    assert "'pictures/red.png', is not the file that this bundle was compiled with: it had" in stopped.stderr
    assert "step 1" not in stopped.stdout
    path.write_bytes(data)
    again = subprocess.run(**command, check=False)
    assert again.returncode == 0, again.stdout + again.stderr


def goes_on_to_the_same_end(location: Path, name: str) -> None:
    """Remove everything that a finished run wrote after its first checkpoint, and launch the run again. It must end
    with the same weights and losses as before.
    """
    out, complete = location / "out" / name, location / "out" / f"{name}-complete"
    shutil.copytree(out, complete)
    for path in out.iterdir():
        if path.name not in ("checkpoint-1", "metrics.jsonl", "xpc_run.json"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert "resuming from checkpoint-1" in launched(location, name)
    saved = next(one.name for one in complete.glob("*model.safetensors"))
    assert (out / saved).read_bytes() == (complete / saved).read_bytes()
    assert [one["loss"] for one in events(out)] == [one["loss"] for one in events(complete)]


USED = """\
import json, sys, torch, transformers
from PIL import Image
out = sys.argv[1]
text = open(f"{out}/README.md").read().partition("## Use")[2]
exec(text.partition("```python\\n")[2].partition("print(")[0].replace('"out/dora"', json.dumps(out)))
prompt = "<|im_start|>user\\n<|vision_start|><|image_pad|><|vision_end|>Which?"
batch = ask.processor(text=[prompt], images=[Image.open(sys.argv[2])], return_tensors="pt")
merged = transformers.AutoModelForImageTextToText.from_pretrained(f"{out}/merged", dtype=ask.model.dtype)
with torch.no_grad():
    one, other = (each.eval()(**batch).logits for each in (ask.model, merged))
print((one - other).abs().max().item())
"""


def test_the_printed_lines_load_the_magnitudes_of_dora(location: Path) -> None:
    trained(location, "dora", "lora(rank=4, dora)", "save(merge)")
    (location / "used.py").write_text(USED, encoding="utf-8")
    done = subprocess.run(
        [tiny_vision.python(), "used.py", "out/dora", "pictures/red.png"], cwd=location,
        env=tiny_vision.environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert float(done.stdout.splitlines()[-1]) < 1e-5


def events(out: Path) -> list[dict[str, Any]]:
    """The events of a run that have a loss."""
    lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [one for one in map(json.loads, lines) if "loss" in one]


def weights(folder: Path, name: str = "model.safetensors") -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(str(folder / name))


def python(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run an interpreter that can import torchvision, in ``folder``."""
    done = subprocess.run(
        [tiny_vision.python(), *arguments], cwd=folder, env=tiny_vision.environment(), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done


BATCH = """
import sys, json
sys.path.insert(0, sys.argv[1])
from worker.session import Session, isolate
del sys.path[0]  # the libraries must not import from there
isolate()
session = Session(sys.argv[2], sys.argv[3], False)
session.load()
rows, _ = session.rows()
trainer = session.trainer(rows)
batch = trainer.data_collator([rows[at] for at in range(4)])
token = session.processor.image_token_id
ids, labels = batch["input_ids"], batch["labels"]
print("BATCH " + json.dumps({
    "pixels": list(batch["pixel_values"].shape), "grid": batch["image_grid_thw"].tolist(),
    "images": (ids == token).sum(1).tolist(), "learned_images": int((labels[ids == token] != -100).sum()),
    "learned": (labels != -100).sum(1).tolist(), "tokens": batch["attention_mask"].sum(1).tolist(),
    "sizes": [[(one["width"], one["height"]) for one in row["images"]] for row in rows],
}))
"""


def batch(location: Path, bundle: str, program: str = BATCH) -> dict[str, Any]:
    """The first four rows as the trainer's collator passes them to the model."""
    import xpc.compiler.preview as preview

    arguments = [os.path.dirname(preview.__file__), str(location / bundle), str(location / "scratch")]
    (location / "batch.py").write_text(program, encoding="utf-8")  # a program in a file runs in the warm interpreter
    done = python("batch.py", *arguments, folder=location)
    found: dict[str, Any] = json.loads(done.stdout.rpartition("BATCH ")[2])
    return found


def test_the_language_model_is_trained_on_images(location: Path) -> None:
    printed = trained(location, "full")
    found = batch(location, "full.bundle")
    expected = [[TOKENS[Path(one).stem] for one in each["images"]] for each in ROWS[:4]]
    assert found["images"] == [sum(one) for one in expected] == [6, 16, 0, 22]
    # the processor divides an image into patches; four patches are one token
    assert found["pixels"] == [4 * sum(found["images"]), 3 * 2 * 14 * 14]
    assert found["grid"] == [[1, 4, 6], [1, 8, 8], [1, 4, 6], [1, 8, 8]]
    assert found["learned_images"] == 0
    assert found["learned"] == [a - b for a, b in zip(found["tokens"], found["images"], strict=True)]
    assert found["sizes"][3] == [list(SIZES["red"]), list(SIZES["blue"])]
    total, images = 3 * sum(found["tokens"]), 3 * sum(found["images"])
    assert f"12 rows with 12 images, {total} tokens, {images} of them for images" in printed
    before, after = weights(location / "model"), weights(location / "out" / "full")
    assert before.keys() == after.keys()
    moved = {name for name in before if not before[name].equal(after[name])}
    assert moved == {name for name in before if "visual" not in name}
    goes_on_to_the_same_end(location, "full")


def test_a_trained_model_is_loaded_with_its_processor_and_answers(location: Path) -> None:
    if not (location / "out" / "full").exists():
        trained(location, "full")
    python(__file__, "answers", "full", folder=location)


def answers(location: Path, name: str) -> None:
    """Ask the saved model a question about each of two images. The source of this function runs in another
    interpreter.
    """
    import torch
    from PIL import Image
    from transformers import AutoModelForImageTextToText, AutoProcessor

    folder = str(location / "out" / name)
    processor = AutoProcessor.from_pretrained(folder)
    model = AutoModelForImageTextToText.from_pretrained(folder).eval()
    logits = []
    for name in COLOURS:
        with Image.open(location / "pictures" / "red.png") as picture:
            image = picture.convert("RGB") if name == "red" else Image.new("RGB", SIZES["red"], COLOURS["blue"])
        turn = {"role": "user", "content": [{"type": "image", "image": image}, {"type": "text", "text": "Which?"}]}
        read = processor.apply_chat_template(
            [turn], tokenize=True, add_generation_prompt=True, return_dict=True, return_tensors="pt"
        )
        with torch.no_grad():
            logits.append(model(**read).logits[0, -1])
            assert model.generate(**read, max_new_tokens=3, do_sample=False).shape[1] > read["input_ids"].shape[1]
    assert not torch.equal(*logits)  # same question, other image


@pytest.mark.nightly
def test_adapters_leave_the_part_that_reads_images(location: Path) -> None:
    """Adapters change no weight of the vision part. The run has two processes, a loss on answers only, gradient
    checkpointing, a holdout, and scaled images.
    """
    printed = trained(
        location, "lora", "lora(rank=4, alpha=8)", "method sft(assistant_only)", "data(holdout=4, max_pixels=7000)",
        "eval(every=1)", "memory(checkpointing)", "strategy ddp", hardware="2 x cpu", micro=1,
    )  # fmt: skip
    assert printed.count("eval loss") == 3
    adapters = weights(location / "out" / "lora", "adapter_model.safetensors")
    # seven linear layers in each of two decoder layers, each with the matrices A and B
    assert len(adapters) == 2 * 2 * 7
    assert not any("visual" in name for name in adapters)
    assert all(one.abs().sum() > 0 for name, one in adapters.items() if "lora_B" in name)
    goes_on_to_the_same_end(location, "lora")
    found = batch(location, "lora.bundle")
    assert 4 in found["images"] or 10 in found["images"]  # the blue image is scaled down to 56 x 56
    assert {*found["images"]} <= {6, 4, 0, 10}
    saved = json.loads((location / "out" / "lora" / "processor_config.json").read_text(encoding="utf-8"))
    assert saved["image_processor"]["size"]["longest_edge"] == 7000
    assert found["learned_images"] == 0
    assert all(0 < learned < tokens - images for learned, tokens, images in zip(
        found["learned"], found["tokens"], found["images"], strict=True))  # fmt: skip


PAIR_BATCH = (
    BATCH.partition("token = ")[0]
    + """
ids, learned = batch["input_ids"], batch["completion_mask"].bool()
images = ids == session.processor.image_token_id
print("BATCH " + json.dumps({
    "pixels": list(batch["pixel_values"].shape), "grid": batch["image_grid_thw"].tolist(),
    "images": images.sum(1).tolist(), "learned_images": int((images & learned).sum()),
    "answers": [session.tokenizer.decode(row[mask]) for row, mask in zip(ids, learned)],
}))
"""
)


@pytest.mark.nightly
def test_dpo_prefers_answers_about_images(location: Path) -> None:
    printed = trained(location, "pairs", "method dpo(beta=0.5)", data="pairs")
    assert "12 rows with 12 images" in printed
    assert printed.count("the vision tower is frozen") == 1
    found = batch(location, "pairs.bundle", PAIR_BATCH)
    # first the sequences with the chosen answers, then the sequences with the rejected answers
    assert found["images"] == [6, 16, 0, 22] * 2
    assert found["pixels"] == [4 * sum(found["images"]), 3 * 2 * 14 * 14]
    assert found["grid"] == [[1, 4, 6], [1, 8, 8], [1, 4, 6], [1, 8, 8]] * 2
    assert found["learned_images"] == 0
    ends = "<|im_end|>\n"
    assert found["answers"][:4] == [f"{one['chosen']}{ends}" for one in PAIRS[:4]]
    assert found["answers"][4:] == [f"{one}{ends}" for one in ("It is blue, green", "Red", "Blue", "It is green")]
    # In the first step, the model equals its reference.
    assert events(location / "out" / "pairs")[0]["loss"] == pytest.approx(math.log(2), abs=1e-5)
    before, after = weights(location / "model"), weights(location / "out" / "pairs")
    assert {name for name in before if not before[name].equal(after[name])} == {
        name for name in before if "visual" not in name
    }
    goes_on_to_the_same_end(location, "pairs")
    python(__file__, "answers", "pairs", folder=location)


@pytest.mark.nightly
def test_dpo_with_adapters_compares_with_the_model_below_them(location: Path) -> None:
    """For dpo with adapters, the reference is the base model, so the loss of the first step is ln 2. The run has two
    processes, a holdout and scaled images.
    """
    lines = ("lora(rank=4, alpha=8)", "method dpo", "data(holdout=4, max_pixels=7000)", "eval(every=1)", "strategy ddp")
    printed = trained(location, "pairs-lora", *lines, data="pairs", hardware="2 x cpu", micro=1)
    assert printed.count("eval loss") == 3
    adapters = weights(location / "out" / "pairs-lora", "adapter_model.safetensors")
    assert len(adapters) == 2 * 2 * 7
    assert not any("visual" in name for name in adapters)
    assert events(location / "out" / "pairs-lora")[0]["loss"] == pytest.approx(math.log(2), abs=1e-5)
    goes_on_to_the_same_end(location, "pairs-lora")
    assert {*batch(location, "pairs-lora.bundle", PAIR_BATCH)["images"]} <= {6, 4, 0, 10}


@pytest.mark.nightly
def test_what_trl_does_with_rows_that_the_rules_refuse(location: Path) -> None:
    """For rows of images, TRL alone raises an exception if the rows are packed (XP215), if an image is truncated
    (XP218), or if dpo has `precompute`. Liger cannot be applied (XP217). TRL also gives image tokens a loss.
    """
    python(__file__, "refused_rows", folder=location)


def refused_rows(location: Path) -> None:
    """Train with TRL alone on rows that xpc refuses. The source of this function runs in another interpreter."""
    from datasets import Dataset
    from PIL import Image
    from transformers import AutoModelForImageTextToText, AutoProcessor
    from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

    from xpc.runtime.library_internals.liger_kernels import Liger

    image = {"images": [Image.new("RGB", SIZES["red"])]}
    rows = [{**row("Which?", "red"), **image}] * 2

    def built(**options: Any) -> Any:
        processor = AutoProcessor.from_pretrained(location / "model")
        model = AutoModelForImageTextToText.from_pretrained(location / "model")
        args = SFTConfig(
            str(location / "trl"), use_cpu=True, bf16=False, report_to=[], **{"max_length": None, **options}
        )
        return SFTTrainer(model, args, train_dataset=Dataset.from_list(rows), processing_class=processor)

    with pytest.raises(ValueError, match="Packing is not supported for vision"):
        built(packing=True)
    with pytest.raises(ValueError, match="Padding-free training is yet not supported for vision"):
        built(padding_free=True)
    with pytest.raises(ValueError, match="Mismatch in `image` token count"):
        next(iter(built(max_length=20).get_train_dataloader()))
    pairs = [{**pair([{"role": "user", "content": "Which?"}], "Red", "Blue"), **image}] * 2
    with pytest.raises(ValueError, match="`precompute_ref_log_probs=True` is not supported for vision"):
        DPOTrainer(
            str(location / "model"), args=DPOConfig(str(location / "dpo"), use_cpu=True, precompute_ref_log_probs=True),
            train_dataset=Dataset.from_list(pairs), processing_class=AutoProcessor.from_pretrained(location / "model"),
        )  # fmt: skip
    trainer = built()
    with pytest.raises(ImportError, match="LigerQwen2_5_VLCausalLMOutputWithPast"):
        Liger().model_loaded(None, trainer.model, None)  # type: ignore[arg-type]  # it reads only the model
    read = next(iter(trainer.get_train_dataloader()))
    images = read["input_ids"] == trainer.processing_class.image_token_id
    assert int(images.sum()) == 2 * TOKENS["red"]
    assert (read["labels"][images] != -100).all()
    assert any(".visual." in name and one.requires_grad for name, one in trainer.model.named_parameters())


if __name__ == "__main__":
    {"answers": answers, "refused_rows": refused_rows}[sys.argv[1]](Path.cwd(), *sys.argv[2:])
