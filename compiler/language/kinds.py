"""The kinds of values, each with the units that it accepts and the words that diagnostics use for it."""

from __future__ import annotations

from math import ceil

from xpc.grammar.record import record

COUNT_UNITS = {"k": 10**3, "M": 10**6, "B": 10**9, "Ki": 2**10, "Mi": 2**20}
TIME_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
BYTE_UNITS = {
    "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip


@record
class Kind:
    """The kind of a setting's value. `phrase` completes the sentence "expected ..."; `example` is a legal value."""

    name: str
    phrase: str
    example: str


FLAG = Kind("flag", "true or false (the bare name means true)", "true")
INT = Kind("int", "a whole number", "8")
TOKENS = Kind("tokens", "a number of tokens", "2048")
REAL = Kind("real", "a number", "1e-5")
STEPS_OR_SHARE = Kind("steps_or_share", "a number of steps (40) or a share of the run (3%)", "40")
REAL_OR_SHARE = Kind("real_or_share", "an absolute value (1e-6) or a share of the peak rate (10%)", "10%")
EVERY = Kind("every", "a number of steps (100), a share of the run (5%), `epoch` or `never`", "100")
ROWS_OR_SHARE = Kind("rows_or_share", "a number of rows (1000) or a share of them (5%)", "5%")
CHOICE = Kind("choice", "one of the listed names", "")
CHOICES = Kind("choices", "one or more of the listed names", "")
TEXT = Kind("text", "a quoted text", '"text"')
FILE = Kind("file", "a file, relative to the spec", 'file("template.jinja")')
TEMPLATE = Kind("template", "a built-in template (chatml) or a file, with arguments or without", "chatml")
ROPE = Kind("rope", "a scaling of rotary positions with its factor: yarn(factor=4)", "yarn(factor=4)")
TEXT_OR_FILE = Kind("text_or_file", "a quoted text or a file", '"text"')
PATH = Kind("path", "a quoted path", '"out/run"')
NAME = Kind("name", "a name or a quoted text", '"main"')
REPOSITORY = Kind("repository", "a repository, `model` or `owner/model`", "me/model")
REALS = Kind("reals", "a list of numbers", "[0.9, 0.999]")
NAMES = Kind("names", "a list of names", "[messages]")
SOURCES = Kind("sources", "a file, a dataset, the name of a `data` block, or a list of them", '"eval.jsonl"')
TASKS = Kind("tasks", "a list of tasks of lm-evaluation-harness", "[leaderboard_bbh]")
WEIGHTED = Kind("weighted", "a name, or a list of names with optional weights", "[accuracy(weight=1)]")
FUNCTIONS = Kind("functions", "a function of a file, or a list of them", '["tools.py:search"]')
TARGETS = Kind("targets", "`all-linear` or a list of module names", "[q_proj, v_proj]")
MODEL = Kind("model", "a model: a registered name, `org/name`, or a quoted folder", "qwen2.5-7b")
SHARE = Kind("share", "a share (70%)", "70%")
DURATION = Kind("duration", "a duration such as 1800s, 30m or 2h", "30m")
HARDWARE = Kind("hardware", "a count and a GPU, or cpu", "8 x h100-80gb")
BLOCK = Kind("block", "a block of settings", "{ }")


@record
class Amount:
    """A number and its unit. The unit decides what the number means.

    With `count`, it is a number of steps or rows. With `share`, it is a fraction from 0 to 1, such as 0.03 for 3 % of
    the run. With `absolute`, it is the value itself, as in `min_lr = 1e-6`. The units `epoch` and `never` have no
    number.
    """

    unit: str
    value: int | float = 0

    def steps(self, run: int) -> int:
        """Convert to a number of steps in a run of `run` steps. A count is returned unchanged. A share of the run is
        rounded up, as in transformers.
        """
        return ceil(self.value * run) if self.unit == "share" else int(self.value)


@record
class Weighted:
    """One loss, reward function or tool of a list. `weight` is None if the spec states no weight. `arguments` are the
    arguments of a reward function, as in `cosine(max_len=1000)`.

    If the entry is a function or a class in a file, `function` is its name. `resolve` reads the file, and sets `file`
    to the path of the file's copy in the bundle, and `sha256` to its digest.
    """

    name: str
    weight: float | None = None
    file: str | None = None
    function: str | None = None
    sha256: str | None = None
    arguments: tuple[tuple[str, bool | int | float | str], ...] = ()


@record
class Template:
    """A chat template: its file, the arguments that the spec sets, and for a built-in template its name. `resolve` sets
    `file` to the path of the copy in the bundle.

    `qwen3(enable_thinking=false)` is `Template("files/qwen3.jinja", (("enable_thinking", False),), "qwen3")`.
    """

    file: str
    arguments: tuple[tuple[str, bool | int | float | str], ...] = ()
    name: str | None = None


@record
class Rope:
    """A scaling of rotary positions, such as `yarn(factor=4)`. `parameters` are further parameters that the spec
    states, such as `beta_fast`. `original` is the length of the context in tokens before the scaling, or None if the
    spec does not state it.
    """

    kind: str
    factor: float
    original: int | None = None
    parameters: tuple[tuple[str, float], ...] = ()

    def context(self, original: int) -> int:
        """The length of the context after the scaling, in tokens. `original` is the model's own length, which is used
        if the spec states no length before the scaling.
        """
        return int((self.original or original) * self.factor)


NEVER = Amount("never")
EPOCH = Amount("epoch")
