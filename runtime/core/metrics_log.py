"""The log of a run: metrics.jsonl, a printed line per log event, and a summary at the end."""

import json
import os
import time
from datetime import timedelta
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from accelerate.utils import broadcast_object_list
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from ..library_internals.transformers_trainer import tokens_trained
from . import checkpoints, machine, measurements, progress, signals
from .checkpoint_integrity import final_files
from .errors import put, say
from .fault_tolerance import writing
from .feature import Arguments, Bundle, Control, State, Trainer
from .metrics_file import METRICS, events, number, replace, trim, written

SUMMARY = "summary.json"
NAMES = {"learning_rate": "lr", "num_tokens": "tokens"}
EXCLUDED = ("epoch", "train_runtime", "train_samples_per_second", "train_steps_per_second", "total_flos")


class Reporter(TrainerCallback, ExportableState):  # type: ignore[misc]  # transformers has no types
    """Writes the metrics file and prints progress lines, on rank 0 only.

    Each trainer_state.json stores the tokens and seconds of training, counted over all starts of the run.
    """

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.trainer: Any = None
        self.path = os.path.join(bundle.output_dir, METRICS)
        self.before = self.tokens_before = 0.0
        self.started = self.last_time = time.monotonic()
        self.first_step = self.logs = 0
        self.lr: float | None = None
        self.last_tokens: float | None = None

    def state(self) -> dict[str, Any]:
        """Seconds, tokens and unlogged losses, which transformers writes into a checkpoint's trainer_state.json."""
        trained = 0 if self.trainer is None else tokens_trained(self.trainer)
        seconds = self.before + time.monotonic() - self.started
        done: dict[str, Any] = {"seconds": round(seconds, 3), "tokens": self.tokens_before + float(trained)}
        if self.trainer is not None:
            done["unlogged"] = self.trainer.unlogged()
        return {"args": {}, "attributes": done}

    def on_train_begin(self, args: Arguments, state: State, control: Control, **_: object) -> None:
        """Record the first step of this start, and drop the events of later steps from the metrics file."""
        self.first_step = state.global_step
        done = {}
        if state.global_step:
            state.compute_steps(args, state.max_steps)  # sets state.logging_steps and state.save_steps
            done = state.stateful_callbacks[type(self).__name__]["attributes"]
        if state.is_world_process_zero:
            with writing(METRICS, args.output_dir, [state.global_step] if state.global_step else []):
                trim(self.path, state.global_step)
                started = measurements.started(self.bundle, self.trainer, state.global_step)
                measurements.append(args.output_dir, started)
            if done:
                self.before, self.tokens_before = done["seconds"], done["tokens"]
        if "unlogged" in done:
            self.trainer.restore_unlogged(done["unlogged"])
        shared = [sorted(step for step, _ in checkpoints.steps(self.bundle.output_dir) if step <= state.global_step)]
        broadcast_object_list(shared)  # on other nodes, the folder may be missing
        self.trainer.saved = shared[0]
        control.should_training_stop = state.global_step >= state.max_steps > 0
        signals.StopRequest.training = True
        self.started = self.last_time = time.monotonic()

    def on_step_begin(self, args: Arguments, state: State, control: Control, **_: object) -> None:
        """At the first step, call the hook `before_first_step`. At each step, record the learning rate: DeepSpeed's
        schedule steps before the log, so the logged rate would be one step ahead.
        """
        if state.global_step == self.first_step:
            for feature in self.bundle.features:
                feature.before_first_step(self.bundle, self.trainer)
            measurements.ended("preparing the first step")
            measurements.Measured.training = True
        self.lr = float(self.trainer.optimizer.param_groups[0]["lr"])

    def on_pre_optimizer_step(self, args: Arguments, state: State, control: Control, **_: object) -> None:
        """Measure the memory of the forward and backward passes."""
        measurements.peak("forward and backward")

    def on_step_end(self, args: Arguments, state: State, control: Control, **_: object) -> None:
        """Make the trainer log the last step, even if `track.every` skips it: a short run would log no loss at all."""
        if state.global_step >= state.max_steps > 0:
            control.should_log = True
        progress.now("")
        self.trainer.epoch_ended = False
        self.trainer.agree()
        if (state.global_step - self.first_step).bit_count() == 1:  # the 1st, 2nd, 4th, 8th ... step
            measurements.exchange()

    def on_epoch_end(self, args: Arguments, state: State, control: Control, **_: object) -> None:
        """Tell the trainer that an epoch has ended. The trainer then logs, evaluates, and saves the last step."""
        self.trainer.epoch_ended = True

    def on_log(self, args: Any, state: State, control: Control, logs: dict[str, Any] | None = None, **_: Any) -> None:
        """Write one event and print its line. A failed write ends the run, because the event would be missing."""
        if logs and "loss" in logs:
            self.trainer.window = None  # the next logged loss is the mean over the steps after this event
        if not state.is_world_process_zero or not logs or "train_runtime" in logs:
            return
        now = time.monotonic()
        event: dict[str, Any] = {"step": state.global_step, "epoch": round(float(state.epoch or 0), 4)}
        kept = {NAMES.get(key, key): value for key, value in logs.items() if key not in EXCLUDED}
        event |= {key: float(value) if isinstance(value, int | float) else value for key, value in kept.items()}
        if "lr" in event and self.lr is not None:
            event["lr"] = self.lr
        for key in event:
            if key == "tokens" or (key.startswith("eval_") and key.endswith("num_tokens")):
                event[key] += self.tokens_before  # trl counts tokens from 0 at each start
        event["seconds"] = round(self.before + now - self.started, 3)
        with writing(METRICS, args.output_dir, self.trainer.saved), open(self.path, "a", encoding="utf-8") as handle:
            handle.write(written(event))
            self.logs += 1
            if self.logs.bit_count() == 1:  # at the events 1, 2, 4, 8, ..., so there are few measurements
                measurements.append(args.output_dir, measurements.now(state.global_step))
        followed = self.bundle.arguments.get("log_completions")  # trl's table follows this line: keep the line
        put(self._line(event, state.max_steps, now), renew="loss" in event and not followed)

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


def finish(bundle: Bundle, trainer: Trainer, seconds: float, started_at: str | None) -> None:
    """Write summary.json from metrics.jsonl, the trainer's state and the token counts, and print it."""
    if TYPE_CHECKING:
        from .. import result
    else:
        result = bundle.program("result.py")
    state, folder = trainer.state, bundle.output_dir
    path, target = os.path.join(folder, METRICS), os.path.join(folder, SUMMARY)
    with writing(SUMMARY, folder, trainer.saved):
        measurements.append(folder, measurements.now(state.global_step))
        logged = [*events(path)]
        tokens = next((event["tokens"] for event in reversed(logged) if event.get("tokens") is not None), None)
        losses = [event["loss"] for event in logged if "loss" in event]
        total = max(logged[-1]["seconds"] if logged else 0.0, seconds)
        found = result.results(logged, bundle.plan["method"]["rewarded"])
        measured = result.totals([*events(os.path.join(folder, measurements.MEASURED))])
        sequences, world = state.global_step * bundle.run["gbs"], trainer.args.world_size
        trained = measured["seconds"].get("train", 0.0)
        evaluated = (feature.last_evaluation(bundle, path, state) for feature in bundle.features)
        evaluation, evaluation_lines = next((one for one in evaluated if one is not None), (None, ""))
        facts = {
            "bundle": bundle.digest,
            "steps": state.global_step,
            "epochs": round(float(state.epoch or 0), 4),
            "first_loss": losses[0] if losses else None,
            "last_loss": losses[-1] if losses else None,
            "results": {name: {key: number(one) for key, one in each.items()} for name, each in found.items()},
            "evaluation": evaluation,
            "sequences": sequences,
            "tokens": tokens,
            "data": trainer.data_facts,
            "seconds": round(total, 3),
            "tokens_per_second": None if not tokens else round(tokens / max(total, 1e-3), 1),
            "peak_allocated_bytes": result.peak_allocated(measured),
            "measured": measured,
            "utilisation": result.utilisation(bundle.run.get("flops"), tokens, sequences, trained, world),
            "resumed_from": started_at,
            "weights": folder,
            "adapter_of": bundle.base if bundle.lora is not None else None,
            "world": world,
            "versions": {name: machine.installed(name) for name in bundle.pins},
            "arguments": {name: value for name, value in trainer.args.to_dict().items() if name in bundle.arguments},
            "files": {},  # the digests are set below, when all files are complete
        }
        picture = result.draw(folder, say)
        changed = {key: value for one in bundle.features for key, value in one.base_settings(bundle, trainer).items()}
        scores, sources = bundle.plan["method"]["scores"], [bundle.model, *bundle.sources()]
        use = partial(result.usage, scores, bundle.conversational, changed, bundle.data.get("system"))
        result.complete_cards(folder, facts, bundle.folder, sources, bundle.arguments["output_dir"], use)
        facts["files"] = final_files(folder)
        text = json.dumps(facts, indent=2, allow_nan=False, default=str)
        # the seal is the digest of the text before the seal is added
        replace(target, [f'{text[:-2]},\n  "seal": "sha256:{sha256(text.encode()).hexdigest()}"\n}}\n'])
    results = result.lines(found) + evaluation_lines
    put(result.ending(facts, results, bundle.lora, picture, path, use(folder), os.path.relpath(bundle.folder)))
