"""Derive the values that a spec does not state: defaults and assumptions, each with its reason. The batch is derived in
derive_batch.py.
"""

from __future__ import annotations

from collections.abc import Callable

from xpc.compiler import registry
from xpc.compiler.language.items import DEFAULT
from xpc.compiler.language.kinds import EPOCH, Amount
from xpc.compiler.language.methods import DEFAULT as USUAL
from xpc.compiler.language.schema import BY_PATH, TABLE
from xpc.compiler.language.setting import Path
from xpc.compiler.language.strategies import FSDP, OLD_STRATEGIES
from xpc.compiler.plan import CHOSEN
from xpc.compiler.registry.types import IMAGE_FAMILIES
from xpc.compiler.resolve import derive_batch
from xpc.compiler.resolve.open_spec import OpenSpec
from xpc.compiler.spec.recomputation import REENTRANT, frozen_runs_twice, why_reentrant
from xpc.compiler.spec.resources import known_rows
from xpc.compiler.spec.values import Origin, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.compiler.plan.choice import Choice

    Choose = Callable[[dict[Path, Value], list[Path]], Choice | None]

MANY_ROWS, ROWS_A_SECOND = 50_000, 550
"""From MANY_ROWS rows on, several processes tokenize. One process tokenizes ROWS_A_SECOND rows per second; this was
measured with rows of 620 tokens.
"""
RECOMPUTATION: tuple[Path, ...] = ("memory.checkpointing", REENTRANT)
NOTED: tuple[Path, ...] = (
    "strategy", "precision", "model.dtype", "memory.checkpointing", "batch.seq", "batch.gbs", "batch.micro", "save",
    "train.epochs", "data.workers",
)  # fmt: skip
"""Settings for which a note reports the assumed value. The notes have the order of this list."""
SHUFFLE_BUFFER = 10_000
"""The size of the shuffle buffer of a stream, in rows. Each next row is drawn at random from the rows in the buffer."""
TENTH = Amount("share", 0.1)
"""A tenth of the run, the default interval at which a run with a stream saves and evaluates."""
UNCUT = ("wrapped", "bfd_split")
"""Packing strategies that lose no tokens: they split a row that is longer than a sequence into several sequences."""


class Derivation(OpenSpec):
    """Derives the values that a spec does not state. The class changes `values` in place, and collects notes on assumed
    values. `run` calls the other methods such that a value is set before the values that depend on it.

    If the spec does not state the strategy, recomputation or the micro-batch, the plan chooses them. For this, `run`
    first gives these settings usual values, so that every setting has a value. Then it calls `choose` with the names of
    the settings to choose.
    """

    choice: Choice | None = None

    def run(self, choose: Choose) -> None:
        """Derive every value that the spec does not state. `choose` is the plan's function that chooses settings."""
        for path in () if self.lora else [one for one in self.values if one.startswith("lora.")]:
            del self.values[path]  # the adapters are switched off (`lora false`), so their settings have no effect
        self._written_strategy()
        self._precision()
        self._method()
        self._sequence()
        self._defaults()
        self._optimizer()
        self._attention()
        self._packing()
        self._length()
        derive_batch.global_batch(self)
        self._rest()
        # the plan chooses the strategy, recomputation and the micro-batch if the spec does not state them
        unset = [path for path in CHOSEN if path not in self.values]
        self.choice = choose({**self._placeholders(), **self.values}, unset)
        self._strategy()
        self._checkpointing()
        derive_batch.micro_batch(self, None if self.choice is None else self.choice.micro)
        self._workers()
        if self.lora and self.hardware.gpu is not None:
            from xpc.compiler.resolve import derive_method

            derive_method.note_frozen_dtype(self)
        self.notes += [self.assumptions[path] for path in NOTED if path in self.assumptions]

    def _placeholders(self) -> dict[Path, Value]:
        """Provisional values of the settings that the plan will choose, and of the settings that depend on these."""
        facts = self.stack.facts
        usual: dict[Path, object] = {
            "strategy": "ddp",
            "memory.checkpointing": self.model.model_type not in facts.no_checkpointing,
            REENTRANT: bool(why_reentrant(self.stack, self.get)),
            "batch.micro": 1,
            "batch.accum": max(1, (self.get("batch.gbs") or 1) // self.replicas),
            "eval.micro": 1,
        }
        if self.method.grouped:
            usual["method.steps_per_generation"] = usual["batch.accum"]
        return {path: Value(value, Origin(DEFAULT)) for path, value in usual.items()}

    def _method(self) -> None:
        """Set the defaults of an adapter, or of a method other than sft. derive_method is imported only for specs with
        one of these.
        """
        if self.lora or self.method.name != USUAL:
            from xpc.compiler.resolve import derive_method

            if self.lora:
                derive_method.adapter(self)
            if self.method.name != USUAL:
                derive_method.own_defaults(self, self.method.name)

    def _sequence(self) -> None:
        """Shorten the default of `seq` to the length of the model's context, if the default is longer and the spec does
        not state `seq`.
        """
        row = BY_PATH["batch.seq"]
        facts, usual = self.model.facts, row.default
        if "batch.seq" in self.values:
            return
        self.assumed = row.path in self.method.reads
        if facts is not None and isinstance(usual, int) and 0 < facts.context < usual:
            self.set("batch.seq", facts.context, "the model's context", DEFAULT)

    def _chosen(self, path: Path) -> bool:
        """Set a setting to the value that the plan chose, with a note. Returns False if the plan chose no value for
        it.
        """
        if self.choice is None or path not in self.choice.values:
            return False
        value, why = self.choice.values[path]
        self.set(path, value, why)
        if path == "memory.checkpointing":
            state, typed = ("turns it on", "checkpointing") if value else ("leaves it off", "checkpointing = false")
            if not value or self._is_noted():
                reason = f"the spec states no checkpointing: xpc {state}, {why}"
                self.note(path, reason, f"`memory({typed})` states this choice")
        else:
            self.note(
                path, f"the spec states no strategy: xpc takes {value}, {why}", f"`strategy {value}` states this choice"
            )
        return True

    def _is_noted(self) -> bool:
        """Whether a default that only affects speed gets a note. True only if the plan chose the strategy or the
        micro-batch.
        """
        return self.choice is not None and (self.choice.micro is not None or "strategy" in self.choice.values)

    def _checkpointing(self) -> None:
        """Set gradient checkpointing: off if the family or a partly frozen reward model under ZeRO-3 does not support
        it, and reentrant if the run needs this kind (`why_reentrant`).
        """
        name, facts = self.model.model_type, self.stack.facts
        open_ = "memory.checkpointing" not in self.values and not self._chosen("memory.checkpointing")
        if open_ and name in facts.no_checkpointing:
            self.set("memory.checkpointing", False, f"{name} has none", DEFAULT)
        elif open_ and frozen_runs_twice(self.stack, self.get):
            self.set(
                "memory.checkpointing", False, "reward runs a partly frozen model forward twice under zero3", DEFAULT
            )
        if REENTRANT not in self.values and (why := why_reentrant(self.stack, self.get)):
            self.set(REENTRANT, True, why)
        for path in RECOMPUTATION:
            self.default(path, BY_PATH[path].default)

    def _defaults(self) -> None:
        streams = self.flag("data.streaming")
        if "eval.data" in self.values:
            self.default("eval.every", TENTH if streams else EPOCH, "`eval` names its rows")
        if streams:
            self.default("save.every", TENTH, "a stream has no epochs")
        method = self.method.name
        for row in TABLE:
            applies = not row.methods or method in row.methods
            if row.default is not None and row.path not in RECOMPUTATION and applies:
                self.default(row.path, row.default)

    def _optimizer(self) -> None:
        """Set the defaults of special optimizers and schedules. derive_optimizer is imported only for specs that name
        one of them.
        """
        optimizer, schedule = str(self.get("optimizer")), str(self.get("schedule"))
        if "_" in optimizer or optimizer == "muon" or schedule in ("reduce_lr_on_plateau", "greedy"):
            from xpc.compiler.resolve import derive_optimizer

            derive_optimizer.own_defaults(self, optimizer, schedule)

    def _written_strategy(self) -> None:
        """Replace an old name of a strategy by the current name. If the strategy uses FSDP, also set FSDP's
        defaults.
        """
        written = self.get("strategy")
        if isinstance(written, str) and written in OLD_STRATEGIES:
            old = self.values["strategy"]
            name, settings = OLD_STRATEGIES[written]
            self.values["strategy"] = Value(
                name, Origin(old.origin.kind, old.origin.label, f"{written} is an old name of {name}")
            )
            for path, value in settings.items():
                origin = Origin(old.origin.kind, old.origin.label, f"{written} sets it")
                self.values.setdefault(path, Value(value, origin))
        if self.get("strategy") in FSDP:
            self.default("strategy.reshard", True)
            lost = "fsdp2_full" in self.stack.facts.fsdp_adapters_lost and self.get("strategy") != "fsdp1"
            if lost and self.get("lora") and self.get("save.full_state") is not False:
                why = f"a full checkpoint of {self.stack.name} has only one shard of an adapter"
                self.default("strategy.state_dict", "sharded", why)
            self.default("strategy.state_dict", "full")
        if self.get("strategy") == "hsdp":
            self.default("strategy.shard", self.hardware.processes, "the number of processes of one node")

    def _strategy(self) -> None:
        if "strategy" in self.values or self._chosen("strategy"):
            return
        self.set("strategy", "ddp", "the model fits on one GPU without sharding", DEFAULT)
        if self.hardware.world > 1:
            why = f"the spec states no strategy: xpc takes ddp on {self.hardware.world} processes"
            self.note("strategy", why, "`with zero2`, `zero3` or `fsdp` shards the model states")

    def _precision(self) -> None:
        if self.get("precision") is not None:
            return
        gpu = self.hardware.gpu
        if gpu is None:
            self.set("precision", "fp32", "the CPU computes in fp32", DEFAULT)
            return
        name = "bf16" if gpu.bf16_tflops is not None else "fp32"
        reason = f"compute capability {gpu.compute_capability} {'has' if name == 'bf16' else 'has no'} bf16"
        self.set("precision", name, reason, DEFAULT)
        alone = "; `precision fp32(tf32)` computes in TF32 instead" if "precision.tf32" in self.values else ""
        message = f"the spec states no precision: xpc takes {name} on {gpu.name} ({reason})"
        self.note("precision", message, f"`precision {name}` states this choice{alone}")

    def _attention(self) -> None:
        if "model.attn" in self.values:
            return
        for model in (self.model, *filter(None, (self.teacher,))):  # both have the same attention
            kind, by_name = model.model_type, ""
            # if the family was guessed wrong, eager attention still works and is only slower, because every family
            # supports it
            if kind is None and model.id is not None:
                kind, by_name = registry.family_named(model.id), " (the family is guessed from the model's name)"
            family = self.stack.family(kind)
            if family is not None and "sdpa" not in family.attention:
                self.set("model.attn", "eager", f"{family.model_type} has no sdpa in this target{by_name}", DEFAULT)
                return
        self.set("model.attn", "sdpa", "", DEFAULT)

    def _packing(self) -> None:
        if not self.flag("batch.packing"):
            return
        self.default("batch.packing.strategy", next(iter(self.stack.packing)), f"{self.stack.name}'s own")
        # the rows of a stream are cut into sequences that do not record where a document ends, so attention cannot
        # isolate documents, and rules refuse `isolate`
        if self.get("batch.packing.strategy") != "wrapped":
            self.default("batch.packing.isolate", "flash", "the attention kernel keeps documents apart")

    def _length(self) -> None:
        """Add a note on the assumed sequence length, and on what happens to longer rows."""
        if not self.assumed:
            return
        packed, longest = self.flag("batch.packing"), self.get("data.max_tokens")
        uncut = self.stack.facts.padding_free_needs_no_max_length and self.flag("batch.padding_free") and not packed
        if uncut and longest is not None:
            self.set("batch.seq", longest, "`max_tokens` drops longer rows", DEFAULT)
            return
        seq, cut = self.get("batch.seq"), self.method.cuts_rows
        if uncut:
            why = "the spec states no longest sequence: with `padding_free` the run cuts no row"
            self.note("batch.seq", why, f"`data(max_tokens = {seq})` drops longer rows")
            return
        if self.model.model_type in IMAGE_FAMILIES:
            longer = "the run ends before its first step if a row is longer, because images cannot be cut"
        elif packed and self.get("batch.packing.strategy") in UNCUT:
            longer = "longer rows are split"
        elif cut == "dropped":
            longer = "longer rows are dropped, and the run counts them"
        else:
            longer = "longer rows are cut" + ("" if cut == "uncounted" else ", and the run counts them")
        reason = f"the spec states no longest sequence: xpc takes seq={seq}; {longer}"
        self.note("batch.seq", reason, f"`seq={seq}` states this choice")

    def _workers(self) -> None:
        """Set the number of tokenizing processes to two per GPU of a node, if a single process would make the GPUs wait
        for minutes.
        """
        if "data.workers" in self.values or self.flag("data.streaming"):
            return
        rows, gpus = known_rows(self.data), self.hardware.processes
        workers = min(2 * gpus, self.get("launch.cpus") or 2 * gpus)
        if self.hardware.gpu is None or rows < MANY_ROWS or workers == 1 or self.method.generates:
            return
        why = f"one process would take {rows / ROWS_A_SECOND / 60:,.0f} minutes for {rows:,} rows, while the GPUs wait"
        self.set("data.workers", workers, why)
        if self._is_noted():
            reason = f"the spec states no `workers`: {workers} processes tokenize; {why}"
            self.note("data.workers", reason, f"`data(workers={workers})` states this choice")

    def _hub(self) -> None:
        """Set the defaults of a run that pushes to the hub: the name of the repository (by transformers' rule), and
        which files are pushed.
        """
        from xpc.compiler.language.repository_names import of_folder

        self.default("save.hub.name", of_folder(str(self.get("save"))), "the last part of `save`")
        self.default("save.hub.strategy", "every_save")
        self.default("save.hub.checkpoint_branches", False)

    def _rest(self) -> None:
        if "save" not in self.values:
            self.set("save", f"out/{self.stem}", "from the name of the spec", DEFAULT)
            why = f'the spec has no `save`: the run is written to "out/{self.stem}"'
            self.note("save", why, f'`save "out/{self.stem}"` states this choice')
        if self.flag("save.hub"):
            self._hub()
        if "train.epochs" not in self.values and "train.steps" not in self.values:
            self.set("train.epochs", 3.0, "transformers' own", DEFAULT)
            self.note(
                "train.epochs", "the spec states no length: the run lasts 3 epochs", "`for 3 epochs` states this choice"
            )
        if any(one.share is not None for one in self.data):
            self.default("data.exhausted", "stop")
        if any(one.documents for one in self.data):
            self.default("data.documents", "line")
            self.default("data.long", "cut")
        if self.flag("data.streaming") and self.get("data.shuffle"):
            self.default("data.shuffle_buffer", SHUFFLE_BUFFER)
        self.default("data.seed", self.get("seed"), "as `seed`")
