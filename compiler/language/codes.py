"""Codes of what `resolve` reports: slug, severity and what `xpc explain` prints. Rules carry their own."""

from __future__ import annotations

from xpc.grammar.diagnostic import Diagnostic, Edit, Label

CODES: dict[str, tuple[str, str, str]] = {
    "XP101": (
        "unknown-setting",
        "error",
        "The name is no setting, clause or choice of the language. Names of other tools are mapped to ours where "
        "they mean the same: `per_device_train_batch_size` is `micro`.",
    ),
    "XP102": (
        "misplaced-setting",
        "error",
        "The setting exists, in another clause. Writing it where it does not belong would hide what it changes.",
    ),
    "XP103": (
        "written-twice",
        "error",
        "One file states the same setting in two places. One of them would silently lose, so both are shown.",
    ),
    "XP104": (
        "wrong-kind",
        "error",
        "The value is not of the kind that the setting takes: a text where a number goes.",
    ),
    "XP105": (
        "wrong-unit",
        "error",
        "The unit chooses the meaning (40 steps, 3 % of the run), and this setting has no meaning for this unit. "
        "Token lengths refuse `2k`, which is read as 2000 by some and 2048 by others.",
    ),
    "XP106": ("unknown-choice", "error", "The setting takes one of a few names, and this is none of them."),
    "XP107": ("out-of-range", "error", "The number is not finite, or outside of the bounds of the setting."),
    "XP108": (
        "unknown-model",
        "error",
        "A bare name must be an alias of the registry. A hub id has a slash (`org/name`), a local directory is quoted.",
    ),
    "XP109": (
        "unregistered-model",
        "note",
        "The hub id is not in the registry, or a config.json is of a family whose parameters are not counted here: "
        'checks that need layers, heads or parameters are skipped. `model { config = file("config.json") }` names the '
        "family, and gives its sizes where they are counted.",
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
        "The hub id is not in the registry, so the shape of its rows is taken to be `messages`. "
        "`data { format = ... }` states another.",
    ),
    "XP112": ("unknown-gpu", "error", "The GPU is not in the registry, so its memory and capability are not known."),
    "XP113": ("unknown-target", "error", "The target names a stack that this version has no table for."),
    "XP114": ("file-not-read", "error", "A file that the spec names is missing, unreadable, too large or not text."),
    "XP115": ("extends-chain", "error", "`extends` is single, relative, without cycles and at most four deep."),
    "XP116": (
        "not-compiled-yet",
        "error",
        "The language reserves the name, and this version cannot compile it. Leaving it out silently would run "
        "something other than what is written.",
    ),
    "XP117": ("no-header", "error", "A spec says what is trained: `train MODEL on DATA`. A fragment is for `extends`."),
    "XP118": (
        "model-facts",
        "error",
        "A local model directory needs a config.json that states the architecture; so does a file given as "
        "`model { config = file(...) }`. A warning where not even the folder above it is here: the model may be where "
        "the run will be, and only there.",
    ),
    "XP119": ("unused-data", "error", "A `data` block has another name than the one after `on`, so nothing reads it."),
    "XP120": (
        "owned-by-a-setting",
        "error",
        "`extra` is an escape for what the language does not own. What a setting decides is written as the setting, "
        "or there would be two sources of truth.",
    ),
    "XP121": (
        "unknown-extra",
        "error",
        "The target's classes have no such name; passed on, it would fail or be ignored.",
    ),
    "XP122": ("two-revisions", "error", "`@revision` and `model { revision = ... }` name different revisions."),
    "XP123": (
        "data-not-here",
        "error",
        "The local data is not where the spec says, as a mistyped path is not. Where `data { format = ... }` "
        "states what its rows are, or its folder is not here either, it may be where the run will be: then it is "
        "a warning, nothing about it is checked, and its digest is not stated.",
    ),
    "XP124": (
        "unknown-columns",
        "error",
        "The runtime maps rows of messages, conversations (from/value), prompt and completion, Alpaca's instruction, "
        "input and output, or text. Other columns are named by `columns`, or the shape by `format`.",
    ),
    "XP125": (
        "no-edition",
        "warning",
        "`xpc 1` on the first line says which edition of the language the page is written in. A one-liner may leave "
        "it out.",
    ),
    "XP126": (
        "setting-of-another-method",
        "error",
        "Each training method reads its own settings: `generations` means nothing to dpo, packing nothing to grpo. "
        "The trainer's own class would refuse the name, or nothing would read it.",
    ),
    "XP128": (
        "encoder-decoder",
        "error",
        "The trainers of the stack train causal language models. A model with an encoder and a decoder, such as T5, "
        "has no class among them: transformers ends with `Unrecognized configuration class` when it is loaded.",
    ),
    "XP129": (
        "task-file",
        "error",
        "A file of `tasks` is a task of lm-evaluation-harness: it names itself by `task:`, and what it names stands "
        "beside it or below, so that a copy of all of it can go into the bundle.",
    ),
    "XP140": (
        "part-of-a-split",
        "error",
        "A part of a split is its first rows: `[train:20%]` in whole percents, or `[train:1000]`. The datasets library "
        "knows no others: `train[:0.2]` and `train[:20.5%]` are errors of it at the launch. No split is called by a "
        "number.",
    ),
    "XP930": (
        "continued-adapter-folder",
        "error",
        "`lora(from = ...)` names a folder with adapter_config.json and adapter_model.safetensors, of low-rank "
        "matrices or rotations, and with no option that the language has no setting for: training would continue "
        "another.",
    ),
    "XP935": (
        "checkpoint-without-weights",
        "error",
        "A checkpoint of ZeRO or FSDP may hold its weights in shards for each process, which no model is loaded from. "
        "The folder of a finished run has them whole, and so has what the library's own script makes of the shards.",
    ),
    "XP190": (
        "assumed",
        "note",
        "Something was not written, and a value had to be assumed. It is stated in the bundle; writing it makes the "
        "note go away.",
    ),
    "XP880": (
        "sweep-shape",
        "error",
        "A sweep holds `setting = [values]` lines, and `zip { }` blocks of such lines. It is a list of runs, not a "
        "program: nothing in it is computed.",
    ),
    "XP881": (
        "zip-of-unequal-lists",
        "error",
        "The lists of a `zip` are taken side by side, value by value, so they have one length. Cutting the longer one "
        "would drop runs that were asked for.",
    ),
    "XP882": (
        "not-swept",
        "error",
        "A sweep varies what is trained and how. Where runs go, what they are called and what starts them is the "
        "sweep's: it gives each member a folder and a name of its own, and one script starts them all.",
    ),
    "XP883": (
        "too-many-members",
        "error",
        "A sweep has at most 10,000 members. Its grid is the product of its lists, which grows fast.",
    ),
    "XP884": (
        "same-members",
        "warning",
        "Two members of the sweep are the same run, perhaps spelled in two ways. A value that a list says twice is "
        "taken once; members that come out the same from different values are all kept.",
    ),
    "XP885": (
        "written-and-swept",
        "warning",
        "A file states a setting and varies it in its sweep, too. The values of the sweep take the written one's "
        "place, which no member has then. A sweep over what a base states is what `extends` is for, and not told.",
    ),
    "XP886": (
        "members-on-one-branch",
        "error",
        "Every member of a sweep with `hub` pushes to a branch of its own; with a written `revision` all would push to "
        "that one, each over the last.",
    ),
    "XP887": (
        "array-of-several-shapes",
        "error",
        "An array of Slurm has one shape: its header asks once for nodes and GPUs, for all of its tasks. Members on "
        "other machines are another sweep.",
    ),
    "XP590": (
        "data-from-a-hidden-folder",
        "warning",
        "The data lies in a hidden folder outside of the spec's, where programs keep keys and caches, and a copy of it "
        "goes into the bundle, which others can read. A file in a folder that is not hidden gives no warning. A text "
        "that `file(...)` names there is refused (XP114).",
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
        "A comment `# xpc: allow CODE reason` silences warnings and notes on its lines, and nothing there gives this "
        "one; or it is an error, which cannot be silenced. What is silenced twice or long gone would hide the next "
        "finding. It is told of the file that is checked, not of its bases, and once no error stands.",
    ),
    "XP902": (
        "malformed-silence",
        "warning",
        "A silence is `# xpc: allow`, one or more codes, and the reason: `# xpc: allow XP410 the cluster has only "
        "FSDP1`. Without a code that exists, or without a reason, it silences nothing.",
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
