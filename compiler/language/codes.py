"""Codes of what `resolve` reports: slug, severity and what `xpc explain` prints. Rules carry their own."""

from __future__ import annotations

from xpc.grammar.diagnostic import Diagnostic, Edit, Label

CODES: dict[str, tuple[str, str, str]] = {
    "XP101": (
        "unknown-setting",
        "error",
        "The name is not a setting, clause or choice of the language. Names of other tools are mapped to ours "
        "where they mean the same: `per_device_train_batch_size` is `micro`.",
    ),
    "XP102": (
        "misplaced-setting",
        "error",
        "The setting belongs to another clause. Accepting it here would hide what it changes.",
    ),
    "XP103": (
        "written-twice",
        "error",
        "One file states the same setting in two places. One of them would silently lose, so both are shown.",
    ),
    "XP104": (
        "wrong-kind",
        "error",
        "The value is of another kind than the setting takes: a text where a number belongs.",
    ),
    "XP105": (
        "wrong-unit",
        "error",
        "The unit decides the meaning (40 steps, 3 % of the run), and this setting has no meaning for this unit. "
        "Token lengths refuse `2k`, because some read it as 2000 and others as 2048.",
    ),
    "XP106": (
        "unknown-choice",
        "error",
        "The setting takes one of a few names, and this is not one of them.",
    ),
    "XP107": ("out-of-range", "error", "The number is not finite, or outside of the bounds of the setting."),
    "XP108": (
        "unknown-model",
        "error",
        "A bare name must be an alias of the registry. A hub id has a slash (`org/name`), a local directory is quoted.",
    ),
    "XP109": (
        "unregistered-model",
        "note",
        "The hub id is not in the registry, or a config.json is of a family whose parameters are not counted "
        'here, so checks that need layers, heads or parameters are skipped. `model { config = file("config.json")'
        " }` names the family, and its sizes if they are counted.",
    ),
    "XP110": (
        "unknown-dataset",
        "error",
        "A bare name must be an alias of the registry, or the name of a `data` block. A hub id has a slash, a "
        "local file is quoted.",
    ),
    "XP111": (
        "unregistered-dataset",
        "note",
        "The hub id is not in the registry, so its rows are assumed to be `messages`. `data { format = ... }` "
        "states another shape.",
    ),
    "XP112": (
        "unknown-gpu",
        "error",
        "The GPU is not in the registry, so its memory and capability are unknown.",
    ),
    "XP113": (
        "unknown-target",
        "error",
        "This version has no tables for the stack that `target` names.",
    ),
    "XP114": (
        "file-not-read",
        "error",
        "A file that the spec names is missing, unreadable, too large or not text.",
    ),
    "XP115": ("extends-chain", "error", "`extends` is single, relative, without cycles and at most four deep."),
    "XP116": (
        "not-compiled-yet",
        "error",
        "The language reserves the name, and this version cannot compile it. Leaving it out silently would run "
        "something else than what is written.",
    ),
    "XP117": (
        "no-header",
        "error",
        "A spec says what to train: `train MODEL on DATA`. A fragment without this line is for `extends`.",
    ),
    "XP118": (
        "model-facts",
        "error",
        "A local model directory needs a config.json that states the architecture, and so does a file given as "
        "`model { config = file(...) }`. It is a warning if the folder above is missing too: then the model may "
        "exist only where the run will be.",
    ),
    "XP119": (
        "unused-data",
        "error",
        "A `data` block has another name than the data after `on`, so nothing reads it.",
    ),
    "XP120": (
        "owned-by-a-setting",
        "error",
        "`extra` is for arguments that the language does not have. What a setting decides must be written as the "
        "setting, or there would be two sources of truth.",
    ),
    "XP121": (
        "unknown-extra",
        "error",
        "The stack's classes have no such name; if passed on, it would fail or be ignored.",
    ),
    "XP122": ("two-revisions", "error", "`@revision` and `model { revision = ... }` name different revisions."),
    "XP123": (
        "data-not-here",
        "error",
        "The local data is not where the spec says; the path may be mistyped. If `data { format = ... }` states "
        "the shape of its rows, or its folder is missing too, the data may exist only where the run will be: then"
        " it is a warning, nothing about the data is checked, and its digest is not stated.",
    ),
    "XP124": (
        "unknown-columns",
        "error",
        "The runtime maps rows of messages, conversations (from/value), prompt and completion, Alpaca's "
        "instruction, input and output, or text. For other columns, `columns` names them, or `format` the shape.",
    ),
    "XP125": (
        "no-edition",
        "warning",
        "`xpc 1` on the first line says which edition of the language the spec is written in. A one-liner may omit it.",
    ),
    "XP126": (
        "setting-of-another-method",
        "error",
        "Each training method reads its own settings: `generations` means nothing to dpo, packing nothing to "
        "grpo. The trainer's class would refuse the name, or nothing would read it.",
    ),
    "XP128": (
        "encoder-decoder",
        "error",
        "The trainers of the stack train causal language models. They have no class for a model with an encoder "
        "and a decoder, such as T5: loading it ends with `Unrecognized configuration class`.",
    ),
    "XP129": (
        "task-file",
        "error",
        "A file in `tasks` is a task of lm-evaluation-harness: it has a name in `task:`, and the files that it "
        "names are next to it or below, so that all of them can be copied into the bundle.",
    ),
    "XP140": (
        "part-of-a-split",
        "error",
        "A part of a split is its first rows: `[train:20%]` in whole percents, or `[train:1000]`. The datasets "
        "library has no others: `train[:0.2]` and `train[:20.5%]` fail at the launch. A number is not the name of"
        " a split.",
    ),
    "XP930": (
        "continued-adapter-folder",
        "error",
        "`lora(from = ...)` names a folder with adapter_config.json and adapter_model.safetensors, of low-rank "
        "matrices or rotations, without options that the language has no setting for; otherwise another adapter "
        "would be trained.",
    ),
    "XP935": (
        "checkpoint-without-weights",
        "error",
        "A checkpoint of ZeRO or FSDP may have its weights in one shard per process, from which no model can be "
        "loaded. The folder of a finished run has complete weights, and so has the output of the library's own "
        "conversion script.",
    ),
    "XP190": (
        "assumed",
        "note",
        "A setting is not written, so a value had to be assumed. The bundle states it; writing the setting "
        "removes the note.",
    ),
    "XP880": (
        "sweep-shape",
        "error",
        "A sweep contains `setting = [values]` lines, and `zip { }` blocks of such lines. It is a list of runs, "
        "not a program: nothing in it is computed.",
    ),
    "XP881": (
        "zip-of-unequal-lists",
        "error",
        "The lists of a `zip` are taken value by value, so they must have the same length. Cutting the longer one"
        " would drop runs.",
    ),
    "XP882": (
        "not-swept",
        "error",
        "A sweep varies what is trained and how. It gives each member its own folder and name, and one script "
        "starts all of them, so settings of place, name and launch cannot vary.",
    ),
    "XP883": (
        "too-many-members",
        "error",
        "A sweep has at most 10,000 members. Its grid is the product of its lists, which grows fast.",
    ),
    "XP884": (
        "same-members",
        "warning",
        "Two members of the sweep are the same run, perhaps spelled differently. A repeated value in a list is "
        "taken once; members that are equal although their values differ are all kept.",
    ),
    "XP885": (
        "written-and-swept",
        "warning",
        "A file states a setting and also varies it in its sweep. The sweep's values replace the written one, "
        "which no member has. Varying a setting of a base is the purpose of `extends`, and not reported.",
    ),
    "XP886": (
        "members-on-one-branch",
        "error",
        "Every member of a sweep with `hub` pushes to its own branch; with a written `revision` all would push to"
        " that one, each over the last.",
    ),
    "XP887": (
        "array-of-several-shapes",
        "error",
        "An array of Slurm has one shape: its header requests nodes and GPUs once for all tasks. Members on other"
        " machines need another sweep.",
    ),
    "XP590": (
        "data-from-a-hidden-folder",
        "warning",
        "The data is in a hidden folder outside of the spec's folder, where programs keep keys and caches, and a "
        "copy of it goes into the bundle, which others can read. A file in a folder that is not hidden gives no "
        "warning. A text that `file(...)` names there is refused (XP114).",
    ),
    "XP888": (
        "array-larger-than-usual",
        "warning",
        "Slurm refuses an array with an index of `MaxArraySize` or above, which is 1001 unless slurm.conf says more. "
        "Today: `sbatch` ends with `Invalid job array specification`. Source: slurm.conf(5); executed.",
    ),
    "XP901": (
        "unused-silence",
        "warning",
        "A comment `# xpc: allow CODE reason` silences warnings and notes on its lines, but none there has this "
        "code; or the finding is an error, which cannot be silenced. A stale silence would hide the next finding."
        " It is reported for the checked file, not for its bases, and only without errors.",
    ),
    "XP902": (
        "malformed-silence",
        "warning",
        "A silence is `# xpc: allow`, one or more codes, and the reason: `# xpc: allow XP410 the cluster has only"
        " FSDP1`. Without an existing code or without a reason, it silences nothing.",
    ),
}


def report(
    code: str,
    message: str,
    primary: Label | None = None,
    *,
    related: tuple[Label, ...] = (),
    help: str | None = None,
    edits: tuple[Edit, ...] = (),
) -> Diagnostic:
    """A diagnostic of the table above, with its slug and severity."""
    slug, severity, _ = CODES[code]
    return Diagnostic(code, slug, severity, message, primary, related, help, edits)


class Problems(list[Diagnostic]):
    """Findings as a stage comes upon them."""

    def report(
        self,
        code: str,
        message: str,
        primary: Label | None = None,
        *,
        related: tuple[Label, ...] = (),
        help: str | None = None,
        edits: tuple[Edit, ...] = (),
    ) -> None:
        """Add a diagnostic of the table above."""
        self.append(report(code, message, primary, related=related, help=help, edits=edits))
