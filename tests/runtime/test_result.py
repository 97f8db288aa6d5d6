"""What a run records: times of phases, waiting times, padding, the best values, utilisation, a plot, and the model
card.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from functools import partial
from importlib.util import find_spec, module_from_spec
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

from xpc.runtime import picture, result
from xpc.runtime.core import measurements
from xpc.runtime.core.measurements import Measured


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measurements of a process that has just started."""
    empty = {"since": 0.0, "training": False, "seconds": {}, "memory": {}, "waits": 0.0, "saves": 0, "saved_bytes": 0,
             "padded": 0, "real": 0}  # fmt: skip
    for name, value in empty.items():
        monkeypatch.setattr(Measured, name, value)


def test_a_process_begins_without_measurements() -> None:
    spec = find_spec(measurements.__name__)
    assert spec is not None
    assert spec.loader is not None
    anew = module_from_spec(spec)
    spec.loader.exec_module(anew)
    begun = vars(anew.Measured)
    assert not any(begun[name] for name in ("training", "seconds", "memory", "of_each", "waits", "real"))
    assert not any(begun[name] for name in ("saves", "saved_bytes", "padded"))


def test_phases_have_their_seconds_and_their_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter((3.0, 5.0, 6.0, 10.0, 10.5, 12.0, 15.0))
    monkeypatch.setattr(measurements.time, "monotonic", lambda: next(clock))
    sizes = iter((100, 90, 300, 200, 150, 120, 110))
    monkeypatch.setattr(measurements.resource, "getrusage", lambda _: type("", (), {"ru_maxrss": next(sizes)}))
    measurements.ended("loading the model")
    measurements.ended("preparing the first step")
    Measured.training = True
    for phase in ("preparing the first step", "evaluating", "writing metrics.jsonl", "", "writing checkpoint-4"):
        measurements.ended(phase)
    assert Measured.seconds == {"load": 5.0, "train": 1.0 + 0.5 + 1.5, "evaluate": 4.0, "save": 3.0}
    unit = 1 if measurements.sys.platform == "darwin" else 1024
    peaks = {"load": 100, "step": 300, "evaluate": 200, "save": 110}
    assert Measured.memory == {name: {"resident": size * unit} for name, size in peaks.items()}


@pytest.mark.slow
def test_a_peak_of_a_phase_is_not_that_of_an_earlier_one() -> None:
    """On Linux, the peak of memory is reset at the beginning of a phase. So 256 MiB that were freed before the phase do
    not count for the phase.
    """
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("this system has no clear_refs, so peaks are never reset")
    held = bytearray(b"x" * 2**28)
    measurements.peak("large")
    del held
    # the phase began before the memory was freed, so its peak includes this memory
    measurements.peak("between")
    measurements.peak("small")
    assert Measured.memory["large"]["resident"] - Measured.memory["small"]["resident"] > 2**27


class Ids:
    """Replaces a tensor of token ids or a mask. Only its size and its sum are read."""

    def __init__(self, size: int, total: int = 0) -> None:
        self.size, self.total = size, total

    def numel(self) -> int:
        return self.size

    def sum(self) -> int:
        return self.total


def test_padding_is_counted_in_every_form_of_a_batch() -> None:
    measurements.batches([{"input_ids": Ids(10), "attention_mask": Ids(10, 7), "labels": Ids(10)}], 0.5)
    measurements.batches([{"chosen_input_ids": Ids(6), "chosen_attention_mask": Ids(6, 5)}], 0.25)  # A batch of pairs.
    measurements.batches([{"input_ids": Ids(4), "position_ids": Ids(4)}], 0.25)  # Packed rows have no padding.
    measurements.batches([[{"prompt": "x"}]], 1.0)  # Online methods get prompts.
    assert (Measured.real, Measured.padded, Measured.waits) == (16, 20, 2.0)


def test_memory_is_that_of_all_processes() -> None:
    each = [{"load": {"allocated": 5, "reserved": 9}, "step": {"allocated": 3, "reserved": 9}},
            {"load": {"allocated": 4, "reserved": 8}, "save": {"allocated": 6, "reserved": 8}}]  # fmt: skip
    assert measurements.highest(each) == {
        "load": {"allocated": 5, "reserved": 9}, "step": {"allocated": 3, "reserved": 9},
        "save": {"allocated": 6, "reserved": 8},
    }  # fmt: skip
    assert measurements.peaks(each) == {"allocated": [5, 6], "reserved": [9, 8]}


def test_lines_are_appended_also_to_a_torn_one(tmp_path: Path) -> None:
    measurements.append(str(tmp_path), {"step": 1})
    with open(tmp_path / "measured.jsonl", "a", encoding="utf-8") as handle:
        handle.write('{"step": 2, "mem')
    measurements.append(str(tmp_path), {"step": 3})
    lines = (tmp_path / "measured.jsonl").read_text().splitlines()
    assert lines == ['{"step": 1}', '{"step": 2, "mem', '{"step": 3}']


def line(step: int, **changes: Any) -> dict[str, Any]:
    found = {"step": step, "seconds": {"train": 2.0}, "memory": {"step": {"allocated": 5}}, "waits": 1.0, "saves": 1,
             "saved_bytes": 10, "real_tokens": 6, "padded_tokens": 8}  # fmt: skip
    return {**found, **changes}


def test_the_last_line_of_each_start_counts() -> None:
    lines = [
        {"step": 0, "started": "a"}, line(1, waits=9.0), line(2, memory={"step": {"allocated": 7}},
                                                              peaks={"allocated": [7, 3]}),
        {"step": 2, "started": "b"}, line(4, seconds={"train": 3.0, "save": 1.0}, peaks={"allocated": [5, 6, 4]}),
        {"step": 4, "started": "c"},
    ]  # fmt: skip
    assert result.totals(lines) == {
        "starts": 3, "seconds": {"train": 5.0, "save": 1.0}, "memory": {"step": {"allocated": 7}},
        "peaks": {"allocated": [7, 6, 4]}, "padding": 0.25, "waits": 2.0, "saves": 2, "saved_bytes": 20,
    }  # fmt: skip
    assert result.totals([])["padding"] is None
    assert result.peak_allocated(result.totals(lines)) == 7
    assert result.peak_allocated(result.totals([])) is None


def test_utilisation_is_the_stated_formula() -> None:
    flops = {"token": 6e9, "length": 1e6, "peak": 1e15}
    found = result.utilisation(flops, 1e6, 1000, 50.0, 2)
    speed = 1e6 * (6e9 + 1e6 * 1000) / 50 / 2
    assert found == {"flops_per_second": round(speed), "share": round(speed / 1e15, 4)}
    assert result.utilisation({**flops, "peak": None}, 1e6, 1000, 50.0, 2)["share"] is None  # type: ignore[index]
    for missing in ((None, 1e6, 1000, 50.0, 2), (flops, None, 1000, 50.0, 2), (flops, 1e6, 1000, 0.0, 2)):
        assert result.utilisation(*missing) is None  # type: ignore[arg-type]


def test_the_best_loss_is_the_lowest_and_the_best_reward_the_highest() -> None:
    logged = [
        {"step": 1, "loss": 3.0, "rewards/margins": 0.1, "eval_loss": 2.0, "eval_hard_rewards/accuracies": 0.5},
        {"step": 2, "loss": "nan", "rewards/margins": 0.4, "reward": None, "grad_norm": 7.0},
        {"step": 3, "loss": 4.0, "rewards/margins": 0.2, "eval_loss": 1.0, "eval_hard_rewards/accuracies": 0.4},
    ]
    found = result.results(logged, rewarded=False)
    best = {name: (one["first"], one["best"], one["best_step"], one["last"]) for name, one in found.items()}
    assert best == {
        "loss": (3.0, 3.0, 1, 4.0), "rewards/margins": (0.1, 0.4, 2, 0.2), "eval_loss": (2.0, 1.0, 3, 1.0),
        "eval_hard_rewards/accuracies": (0.5, 0.5, 1, 0.4),
    }  # fmt: skip
    assert result.lines(found) == (
        "loss       3.0000 -> 4.0000  (lowest 3.0000 at step 1, highest 4.0000 at step 3)\n"
        "margin     0.1000 -> 0.2000  (lowest 0.1000 at step 1, highest 0.4000 at step 2)\n"
    )
    rewarded = result.results([{"step": 1, "loss": 0.0, "reward": 1.0}], rewarded=True)
    assert list(rewarded) == ["reward"]
    assert result.lines(rewarded) == "reward     1.0000\n"
    assert list(result.results([{"step": 1, "loss": 0.0}], rewarded=True)) == ["loss"]


def test_the_results_of_a_reward_model_are_its_accuracy_and_margin() -> None:
    """trl's reward trainer also logs the lowest, mean and highest score, which have no best value."""
    logged = [
        {"step": step, "loss": 1 / step, "accuracy": 0.4 * step, "margin": 1.0 * step, "mean_reward": 0.0,
         "eval_loss": 1 / step, "eval_mean_reward": 0.0, "eval_max_reward": 2.0, "eval_accuracy": 0.9 - 0.1 * step,
         "eval_hard_margin": 2.0, "eval_mean_token_accuracy": 0.5} for step in (1, 2)
    ]  # fmt: skip
    found = result.results(logged, rewarded=False)
    best = {name: one["best_step"] for name, one in found.items()}
    assert best == {
        "loss": 2, "accuracy": 2, "margin": 2, "eval_loss": 2, "eval_accuracy": 1, "eval_hard_margin": 1
    }  # fmt: skip
    assert "accuracy   0.4000 -> 0.8000\n" in result.lines(found)
    drawn = {panel: [*names] for panel, names in picture.curves(logged).items()}
    assert drawn == {
        "accuracy": ["accuracy", "eval_accuracy"], "margin": ["margin", "eval_hard_margin"],
        "loss": ["loss", "eval_loss"],
    }  # fmt: skip


REWARDED = [
    {"step": step, "loss": 0.0, "reward": 0.5 * step, "rewards/accuracy/mean": 0.2 * step, "rewards/accuracy/std": 0.1,
     "rewards/short/mean": 0.3 * step, "eval_rewards/short/mean": 0.9} for step in (1, 2, 3)
]  # fmt: skip


def test_each_of_several_reward_functions_has_a_result() -> None:
    found = result.results(REWARDED, rewarded=True)
    assert list(found) == ["reward", "rewards/accuracy/mean", "rewards/short/mean", "eval_rewards/short/mean"]
    assert found["rewards/short/mean"]["best_step"] == 3
    assert result.lines(found) == (
        "reward     0.5000 -> 1.5000  (lowest 0.5000 at step 1, highest 1.5000 at step 3)\n"
        "  accuracy 0.2000 -> 0.6000  (lowest 0.2000 at step 1, highest 0.6000 at step 3)\n"
        "  short    0.3000 -> 0.9000  (lowest 0.3000 at step 1, highest 0.9000 at step 3)\n"
    )
    one = [{key: value for key, value in event.items() if "accuracy" not in key} for event in REWARDED]
    # there is only one reward function, so its reward is the total
    assert list(result.results(one, rewarded=True)) == ["reward"]


def test_a_sweep_has_a_line_for_each_member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    losses: dict[str, Any] = {"a": 0.5, "bb": 0.25, "c": None, "d": "nan"}
    for name, loss in losses.items():
        (tmp_path / "members" / name).mkdir(parents=True)
        (tmp_path / "out" / name).mkdir(parents=True)
        stated = {"arguments": {"output_dir": f"out/{name}"}}
        (tmp_path / "members" / name / "trainer_args.json").write_text(json.dumps(stated))
        one = {"best": loss, "best_step": 3, "last": 1.5}
        if loss is not None:
            summary = {"results": {"loss": one | {"best": 9.0}, "eval_loss": one}}
            (tmp_path / "out" / name / "summary.json").write_text(json.dumps(summary))
    assert result.overview("members", ["a", "0", "bb", "0", "c", "1", "d", "0", "e", "0"]) == (
        "a   eval_loss 0.5000 at step 3, last 1.5000  out/a\n"
        "bb  eval_loss 0.2500 at step 3, last 1.5000  out/bb  (best)\n"
        "c   failed with exit status 1  out/c\n"
        "d   eval_loss nan at step 3, last 1.5000  out/d\n"
        "e   trained\n"
    )


def test_merged_weights_are_named() -> None:
    assert result.weights("out", None, None) == "out"
    assert result.weights("out", "base", {"merge": None}) == "out  (adapters; their base is base)"
    assert result.weights("out", "base", {"merge": True}).endswith("\nmerged     out/merged")


def test_a_picture_that_fails_ends_no_run(tmp_path: Path) -> None:
    output: list[str] = []
    (tmp_path / "picture.svg").mkdir()
    assert not result.draw(str(tmp_path), output.append)
    assert output
    assert output[0].startswith("no picture was drawn: ")


def test_the_lines_of_use_are_python() -> None:
    for scores in (True, False):
        for chat in (True, False):
            first, second, *rest = lines = result.usage(scores, chat, {}, None, 'a "folder"')
            compile("\n".join(lines), "use", "exec")
            assert "text-classification" in second if scores else "text-generation" in second
            assert ('"role"' in rest[0]) == chat
            assert ('function_to_apply="none"' in rest[-1]) == scores
            assert first == "from transformers import pipeline"


def test_the_lines_of_use_ask_with_the_system_prompt_of_the_rows(tmp_path: Path) -> None:
    turn = {"role": "system", "content": 'Say "four".\n'}
    for scores in (False, True):
        assert f'[{json.dumps(turn)}, {{"role": "user"' in "\n".join(
            result.usage(scores, True, {}, turn["content"], "x")
        )
    assert "system" not in "".join(result.usage(False, False, {}, "Be brief.", "x"))  # rows of plain text have no turns
    (tmp_path / "processor_config.json").write_text("{}")
    *_, question = result.usage(False, True, {}, "Be brief.", str(tmp_path))
    assert '[{"role": "system", "content": [{"type": "text", "text": "Be brief."}]}, {"role": "user"' in question


def test_the_lines_of_use_load_adapters_with_their_tokenizer(tmp_path: Path) -> None:
    """The printed Python lines load the tokenizer from the adapter's folder, because the base's tokenizer may have
    another chat template. They also set the scaling of positions that the base's configuration lacks.
    """
    named = '{"peft_type": "LORA", "base_model_name_or_path": "a/b", "revision": "c"}'
    (tmp_path / "adapter_config.json").write_text(named)
    for scores, loader in ((False, "CausalLM"), (True, "SequenceClassification")):
        for settings in ({}, {"x_scaling": {"factor": 4.0}}):
            text = "\n".join(result.usage(scores, False, settings, None, str(tmp_path), "out/x"))
            compile(text, "use", "exec")
            assert 'tokenizer=AutoTokenizer.from_pretrained("out/x")' in text
            assert ("num_labels=1" in text) == scores
            assert (f"AutoPeftModelFor{loader}.from_pretrained(" in text) != bool(settings)
            assert ("\nconfig.x_scaling = {'factor': 4.0}\n" in text) == bool(settings)
            assert text.count('from_pretrained("a/b", revision="c"') == (2 if settings else 0)


def test_the_lines_of_use_load_the_base_in_as_many_bits_as_it_was_trained(tmp_path: Path) -> None:
    """An adapter that LoftQ initialized corrects the rounding of its base. It is wrong for a base of 16 bits."""
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "a/b"}')
    bits = {"quantization_config": {"load_in_4bit": True}}
    plain = result.usage(False, False, bits, None, str(tmp_path), "out/x")
    stated = "quantization_config={'load_in_4bit': True}"
    assert f'AutoPeftModelForCausalLM.from_pretrained("out/x", {stated})' in "\n".join(plain)
    settings = {**bits, "rope_scaling": {"factor": 4.0}}
    scaled = "\n".join(result.usage(False, False, settings, None, str(tmp_path), "out/x"))
    compile(scaled, "use", "exec")
    assert f'AutoModelForCausalLM.from_pretrained("a/b", config=config, {stated})' in scaled
    assert "config.quantization_config" not in scaled
    assert "config.rope_scaling = {'factor': 4.0}" in scaled


def test_the_lines_of_use_load_adapters_of_a_model_that_reads_images(tmp_path: Path) -> None:
    """With transformers 5.23, `pipeline(task, folder)` drops the magnitudes of DoRA; peft loads them."""
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "a/b"}')
    (tmp_path / "processor_config.json").write_text("{}")
    text = "\n".join(result.usage(False, True, {}, None, str(tmp_path), "out/x"))
    compile(text, "use", "exec")
    assert 'base = AutoModelForImageTextToText.from_pretrained("a/b", config=config)' in text
    assert 'processor=AutoProcessor.from_pretrained("out/x")' in text


def test_the_lines_of_use_name_a_folder_as_it_is_written() -> None:
    assert '"/out/Käse"' in result.usage(False, False, {}, None, "/out/Käse")[1]


@pytest.mark.parametrize(
    ("head", "found"),
    [
        ("---\nlicense: apache-2.0\n---\n", "apache-2.0"),
        ("---\ntags: [a]\nlicense: 'mit'\n---", "mit"),
        ("---\nlicense: other\nlicense_name: qwen-research\n---\n# x\n", "qwen-research"),
        ("---\nlicense: [a, b]\n---\n", None),
        ("---\nlicense: <b>x</b>\n---\n", None),
        ("license: mit\n", None),
        ("---\nlicense: mit\n", None),
        ("", None),
    ],
)
def test_the_licence_is_the_one_on_the_card(tmp_path: Path, head: str, found: str | None) -> None:
    (tmp_path / "README.md").write_text(head)
    assert result.licence(str(tmp_path / "README.md")) == found
    assert result.licence(str(tmp_path / "none")) is None


def test_cards_get_picture_numbers_licences_and_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XPC_DATA_ROOT", raising=False)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "README.md").write_text("---\nlicense: gemma\n---\n")
    (tmp_path / "rows.jsonl").write_text("")
    out = tmp_path / "out"
    (out / "merged").mkdir(parents=True)
    for location in (out, out / "merged"):
        (location / "README.md").write_text("# x\n")
    (out / "picture.svg").write_text("<svg/>")
    found = result.results([{"step": 1, "loss": 2.0}, {"step": 2, "loss": "nan"}], rewarded=False)
    facts = {"results": {"loss": {name: str(one) if one != one else one for name, one in found["loss"].items()}},
             "tokens": 1234.0, "steps": 2, "sequences": 16, "seconds": 3.0, "measured": {"starts": 2}}  # fmt: skip
    sources = [{"id": None, "path": "model", "revision": None}, {"id": None, "path": "rows.jsonl", "split": "train"}]
    result.complete_cards(
        str(out), facts, str(tmp_path / "my x.bundle"), sources, "out", partial(result.usage, False, True, {}, None)
    )
    card = (out / "README.md").read_text()
    assert "| `model` | gemma |\n| `rows.jsonl` | unknown: its README.md was not found |" in card
    assert card.startswith("# x\n\n## Result\n\n![the curves of the run](picture.svg)\n")
    assert "| `loss` | 2.0000 | 2.0000 (step 1) | nan |" in card
    assert "2 steps, 16 sequences, 1,234 tokens in 3 s in 2 starts." in card
    assert 'ask = pipeline("text-generation", "out")' in card
    assert "`xpc verify 'my x.bundle' --run DIR`" in card
    merged = (out / "merged" / "README.md").read_text()
    assert "](../picture.svg)" in merged
    assert 'ask = pipeline("text-generation", "out/merged")' in merged


# -- picture ----------------------------------------------------------------------------------------------------------


def parsed_picture(events: list[dict[str, Any]], restarts: tuple[float, ...] = ()) -> ET.Element:
    return ET.fromstring(picture.picture(events, restarts))


def points(found: ET.Element) -> list[list[tuple[float, float]]]:
    """The points of each curve of a plot, in the plot's units."""
    paths = [one.get("d") or "" for one in found.iter("{http://www.w3.org/2000/svg}path")]
    return [[(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", path)] for path in paths]


def test_a_picture_has_a_panel_for_what_was_logged() -> None:
    logged = [
        {"step": one, "loss": 4.0 / one, "lr": 1e-5, "tokens": 10.0 * one, "seconds": 2.0 * one, "reward": one,
         "eval_loss": 3.0 / one, "rewards/margins": 0.5, "rewards/a/mean": one, "rewards/b/mean": 1,
             "accuracy": 0.5}
        for one in range(1, 6)
    ]  # fmt: skip
    titles = [
        one.text
        for one in parsed_picture(logged).iter("{http://www.w3.org/2000/svg}text")
        if one.get("class") == "title"
    ]
    assert titles == list(picture.PANELS)
    assert picture.curves(logged)["tokens/s"] == {"tokens/s": [(step, 5.0) for step in range(2, 6)]}
    assert set(picture.curves(logged)["loss"]) == {"loss", "eval_loss"}


def test_points_are_where_their_values_are() -> None:
    (curve,) = points(
        parsed_picture([{"step": step, "loss": value} for step, value in ((10, 4.0), (20, 2.0), (30, 0.0))])
    )
    assert [y for _, y in curve] == sorted(y for _, y in curve)
    assert curve[0][1] == picture.TOP
    assert curve[-1] == (picture.WIDTH - picture.RIGHT, picture.HEIGHT - picture.BOTTOM)
    assert curve[1][1] == pytest.approx((curve[0][1] + curve[2][1]) / 2, abs=0.1)


def test_a_single_point_is_a_ring() -> None:
    (one,) = parsed_picture([{"step": 4, "loss": 2.0}]).iter("{http://www.w3.org/2000/svg}path")
    assert (one.get("d") or "").count("a3 3 0 1 0") == 2
    assert not any("a3" in (path.get("d") or "") for path in parsed_picture(REWARDED).iter())


def test_each_of_several_reward_functions_has_a_curve() -> None:
    assert set(picture.curves(REWARDED)["rewards"]) == {"accuracy", "short", "eval_short"}
    names = {f"rewards/{'long' * 5}{number}/mean": number for number in range(8)}
    found = parsed_picture([{"step": step, **names} for step in (1, 2)])
    texts = [one for one in found.iter("{http://www.w3.org/2000/svg}text") if (one.text or "").startswith("long")]
    # the legend is broken into lines, and no line is wider than the panel
    assert len({one.get("y") for one in texts}) == 4
    assert all(float(one.get("x") or 0) + 6 * len(one.text or "") <= picture.WIDTH for one in texts)
    functions = {key: value for key, value in REWARDED[0].items() if "accuracy" not in key}
    assert "rewards" not in picture.curves([functions])


def test_nan_interrupts_a_line_and_spikes_stay() -> None:
    logged = [{"step": one, "loss": 1.0} for one in range(10)]
    logged[5]["loss"] = "nan"
    path = next(parsed_picture(logged).iter("{http://www.w3.org/2000/svg}path")).get("d") or ""
    assert path.count("M") == 2
    many = [{"step": one, "loss": 100.0 if one == 4321 else 1.0} for one in range(10_000)]
    (curve,) = points(parsed_picture(many))
    assert len(curve) <= 2 * picture.POINTS
    assert min(y for _, y in curve) == picture.TOP


def test_restarts_are_marked() -> None:
    found = parsed_picture([{"step": one, "loss": 1.0 / one} for one in range(1, 9)], (4.0,))
    assert [one[0].text for one in found.iter("{http://www.w3.org/2000/svg}line") if one.get("class") == "restart"] == [
        "started again from step 4"
    ]
    assert picture.restarts_of([{"step": 0, "started": ""}, {"step": 3}, {"step": 2, "started": ""}]) == [2.0]


@pytest.mark.parametrize(
    "values",
    [[], [1.0], [0.0, 0.0], [nan, inf], [1e308, -1e308], [5e-324, 1e-300], [-3.0, -1.0], ["x", None, True, {}]],
)
def test_any_values_are_a_picture(values: list[Any]) -> None:
    logged = [{"step": number, "loss": value, "lr": value} for number, value in enumerate(values)]
    text = picture.picture(logged, ())
    ET.fromstring(text)
    assert "nan" not in text.replace("started", "")


def test_names_of_metrics_are_no_markup() -> None:
    name = 'eval_<script>"&\x00\u202e\ud800_loss'
    found = parsed_picture([{"step": 1, "loss": 1.0, name: 2.0}, {"step": 2, "loss": 1.0}])
    assert not list(found.iter("{http://www.w3.org/2000/svg}script"))
    assert any("<U+0000>" in (one.text or "") for one in found.iter("{http://www.w3.org/2000/svg}text"))


def test_the_program_draws_a_run_that_is_going(tmp_path: Path) -> None:
    logged = [{"step": one, "loss": 1.0 / one} for one in (1, 2, 3)]
    text = "".join(json.dumps(one) + "\n" for one in logged) + '{"step": 4, "lo'
    (tmp_path / "metrics.jsonl").write_text(text)
    assert picture.write(str(tmp_path)) == str(tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").read_text() == picture.picture(logged, ())
