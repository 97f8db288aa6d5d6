"""The log of a run: metrics.jsonl, a printed line per log event, and a summary at the end."""

import contextlib
import json
import os
import time
from datetime import timedelta
from hashlib import sha256
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from ..library_internals.transformers_trainer import tokens_trained
from . import checkpoints, machine, progress, signals
from .checkpoint_integrity import final_files
from .errors import put
from .fault_tolerance import writing
from .feature import Bundle
from .metrics_file import events, number, trim, written

METRICS, SUMMARY = "metrics.jsonl", "summary.json"
NAMES = {"learning_rate": "lr", "num_tokens": "tokens"}
COURSES = {"loss": "loss", "reward": "reward", "rewards/margins": "margin"}
"""Metrics whose first, last, lowest and highest value are printed at the end, with the word for each."""
EXCLUDED = ("epoch", "train_runtime", "train_samples_per_second", "train_steps_per_second", "total_flos")


class Reporter(TrainerCallback, ExportableState):  # type: ignore[misc]  # transformers has no types
    """Writes the metrics file and prints progress lines, on rank 0. Each trainer_state.json stores the tokens and
    seconds of all starts so far.
    """

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.trainer: Any = None
        self.path = os.path.join(bundle.output_dir, METRICS)
        self.before = self.tokens_before = 0.0
        self.started = self.last_time = time.monotonic()
        self.first_step = 0
        self.lr: float | None = None
        self.last_tokens: float | None = None

    def state(self) -> dict[str, Any]:
        """The state that transformers writes into the trainer_state.json of a checkpoint."""
        trained = 0 if self.trainer is None else tokens_trained(self.trainer)
        seconds = self.before + time.monotonic() - self.started
        done: dict[str, Any] = {"seconds": round(seconds, 3), "tokens": self.tokens_before + float(trained)}
        if self.trainer is not None:
            done["unlogged"] = self.trainer.unlogged()
        return {"args": {}, "attributes": done}

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Record the first step of this start, and cut the metrics file back to it."""
        self.first_step = state.global_step
        done = {}
        if state.global_step:
            state.compute_steps(args, state.max_steps)  # the checkpoint has older intervals if `save every` has changed
            done = state.stateful_callbacks[type(self).__name__]["attributes"]
        if state.is_world_process_zero:
            with writing(METRICS, args.output_dir, [state.global_step] if state.global_step else []):
                trim(self.path, state.global_step)
                with open(self.path, "a", encoding="utf-8"):
                    pass  # the file exists from the start
            if done:
                self.before, self.tokens_before = done["seconds"], done["tokens"]
        if "unlogged" in done:
            self.trainer.restore_unlogged(done["unlogged"])
        self._catch_up(args, state)
        control.should_training_stop = state.global_step >= state.max_steps > 0
        signals.StopRequest.training = True
        self.started = self.last_time = time.monotonic()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Check the wrapped model once, at the first step, and record the learning rate of each step.

        transformers logs the rate before its own scheduler has stepped but after DeepSpeed's has, which is one step
        ahead.
        """
        if state.global_step == self.first_step:
            for feature in self.bundle.features:
                feature.before_first_step(self.bundle, self.trainer)
        self.lr = float(self.trainer.optimizer.param_groups[0]["lr"])

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Log the last step for any `track.every`, because otherwise a short run would log no loss."""
        if state.global_step >= state.max_steps > 0:
            control.should_log = True
        progress.now("")
        self.trainer.epoch_ended = False
        self.trainer.agree()

    def on_prediction_step(self, args: Any, state: Any, control: Any, eval_dataloader: Any = None, **_: Any) -> None:
        """Count the batches of an evaluation."""
        progress.Phase.done += 1
        with contextlib.suppress(TypeError):  # a stream has no length
            progress.Phase.total = len(eval_dataloader)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Notify the trainer, which saves the last step of an epoch after logging and evaluating."""
        self.trainer.epoch_ended = True

    def _catch_up(self, args: Any, state: Any) -> None:
        """Tell all processes which checkpoints exist, and whether the evaluation that was due at this step
        was missed.
        """
        from accelerate.utils import broadcast_object_list

        steps = [step for step, _ in checkpoints.steps(self.bundle.output_dir) if step <= state.global_step]
        missed = (one.evaluation_missed(self.bundle, args, state, self.path) for one in self.bundle.features)
        shared = [sorted(steps), state.is_world_process_zero and any(missed)]
        broadcast_object_list(shared)
        self.trainer.saved, self.trainer.evaluate_first = shared

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        """Write one event and print its line. A failed write ends the run, because the event would be lost."""
        if logs and "loss" in logs:
            self.trainer.window = None  # the next logged mean starts here
        if not state.is_world_process_zero or not logs or "train_runtime" in logs:
            return
        now = time.monotonic()
        event: dict[str, Any] = {"step": state.global_step, "epoch": round(float(state.epoch or 0), 4)}
        for key, value in logs.items():
            if key not in EXCLUDED:
                event[NAMES.get(key, key)] = float(value) if isinstance(value, int | float) else value
        if "lr" in event and self.lr is not None:
            event["lr"] = self.lr
        for key in event:
            if key == "tokens" or (key.startswith("eval_") and key.endswith("num_tokens")):
                event[key] += self.tokens_before  # trl counts from each start of the program
        event["seconds"] = round(self.before + now - self.started, 3)
        with writing(METRICS, args.output_dir, self.trainer.saved), open(self.path, "a", encoding="utf-8") as handle:
            handle.write(written(event))
        put(self._line(event, state.max_steps, now), renew="loss" in event)

    def _line(self, event: dict[str, Any], total: int, now: float) -> str:
        words = [f"step {event['step']}/{total}"]
        evaluated = "".join(feature.log_line(self.bundle, event) for feature in self.bundle.features)
        if evaluated:
            return f"{words[0]}  {evaluated}"
        if "loss" in event:
            words.append(f"loss {event['loss']:.4f}")
        words += [word for feature in self.bundle.features for word in feature.log_words(self.bundle, event)]
        if "lr" in event:
            words.append(f"lr {event['lr']:.2e}")
        if isinstance(event.get("grad_norm"), float):
            words.append(f"grad {event['grad_norm']:.2f}")
        tokens = event.get("tokens")
        if tokens is not None:
            if self.last_tokens is not None and now > self.last_time:
                words.append(f"{(tokens - self.last_tokens) / (now - self.last_time):,.0f} tokens/s")
            self.last_tokens = tokens
        self.last_time = now
        done = event["step"] - self.first_step
        if done > 0:
            words.append(f"left {timedelta(seconds=round((now - self.started) / done * (total - event['step'])))}")
        return "  ".join(words)


def finish(bundle: Bundle, trainer: Any, seconds: float, started_at: str | None) -> None:
    """Write summary.json from metrics.jsonl, the trainer's state and the token counts, and print it."""
    import torch

    state, folder = trainer.state, bundle.output_dir
    path, target = os.path.join(folder, METRICS), os.path.join(folder, SUMMARY)
    courses: dict[str, list[tuple[int, float]]] = {key: [] for key in COURSES}
    tokens, total = None, seconds
    with writing(SUMMARY, folder, trainer.saved):
        for event in events(path):
            tokens, total = event.get("tokens", tokens), event.get("seconds", total)
            for key in COURSES:
                if isinstance(event.get(key), int | float | str):
                    courses[key].append((event["step"], float(event[key])))
        losses = [value for _, value in courses["loss"]]
        total = max(total, seconds)
        evaluated = (feature.last_evaluation(bundle, path, state) for feature in bundle.features)
        evaluation, evaluation_lines = next((one for one in evaluated if one is not None), (None, ""))
        facts = {
            "bundle": bundle.digest,
            "steps": state.global_step,
            "epochs": round(float(state.epoch or 0), 4),
            "first_loss": number(losses[0]) if losses else None,
            "last_loss": number(losses[-1]) if losses else None,
            "evaluation": evaluation,
            "sequences": state.global_step * bundle.run["gbs"],
            "tokens": tokens,
            "data": trainer.data_facts,
            "seconds": round(total, 3),
            "tokens_per_second": None if not tokens else round(tokens / max(total, 1e-3), 1),
            "peak_allocated_bytes": torch.cuda.max_memory_allocated() or None,  # none on a CPU
            "resumed_from": started_at,
            "weights": folder,
            "adapter_of": bundle.base if bundle.lora is not None else None,
            "world": trainer.args.world_size,
            "versions": {name: machine.installed(name) for name in bundle.pins},
            "arguments": {name: value for name, value in trainer.args.to_dict().items() if name in bundle.arguments},
            "files": final_files(folder),
        }
        text = json.dumps(facts, indent=2, allow_nan=False, default=str)
        seal = sha256(text.encode()).hexdigest()
        with open(target + ".part", "w", encoding="utf-8") as handle:
            handle.write(f'{text[:-2]},\n  "seal": "sha256:{seal}"\n}}\n')  # the digest of the text without the seal
        os.replace(target + ".part", target)
    if bundle.plan["method"]["rewarded"] and courses["reward"]:
        del courses["loss"]  # around zero at every step: the rewards show what is learned
    lines = [f"{word:<10} {_course(courses[key])}\n" for key, word in COURSES.items() if courses.get(key)]
    base = f"  (adapters; their base is {facts['adapter_of']})" if facts["adapter_of"] else ""
    processed = f"{facts['sequences']:,} sequences" + ("" if tokens is None else f", {tokens:,.0f} tokens")
    put(
        f"\ndone       {facts['steps']} steps, {facts['epochs']} epochs in {timedelta(seconds=int(total))}\n"
        f"{''.join(lines)}{evaluation_lines}seen       {processed}\n"
        f"weights    {folder}{base}\n"
        f"metrics    {path}\n"
        f'load       {_loader(bundle)}.from_pretrained("{folder}")\n'
        f"verify     xpc verify {os.path.relpath(bundle.folder)} --run {os.path.relpath(folder)}"
    )


def _course(values: list[tuple[int, float]]) -> str:
    """The first and the last value of a metric, and between which bounds it was."""
    numbers = [value for _, value in values]
    if len(values) < 3:
        return f"{numbers[0]:.4f} -> {numbers[-1]:.4f}"
    low, high = (choose(values, key=lambda one: one[1]) for choose in (min, max))
    return (
        f"{numbers[0]:.4f} -> {numbers[-1]:.4f}  "
        f"(lowest {low[1]:.4f} at step {low[0]}, highest {high[1]:.4f} at step {high[0]})"
    )


def _loader(bundle: Bundle) -> str:
    """The class that loads the final weights."""
    kind = "SequenceClassification" if bundle.plan["method"]["scores"] else "CausalLM"
    return f"AutoModelFor{kind}" if bundle.lora is None else f"AutoPeftModelFor{kind}"
