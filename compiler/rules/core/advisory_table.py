"""Advisories: known wrong results of certain versions of libraries. The table is compiler/stacks/advisories.toml."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from xpc.compiler import stacks
from xpc.compiler.data.row_counts import trained
from xpc.compiler.language.schema import BY_PATH
from xpc.compiler.rules.core.conditions import batched_evaluation
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import Stack
from xpc.grammar.package_data import read_table
from xpc.grammar.record import field, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.compiler.language.paths import Path

SET = "set"
EXTRA = "extra."


@record
class Advisory:
    """A computation that some versions of a package get wrong. A spec is affected if it satisfies the conditions in
    `when`. `first` is the first version with the error, and `fixed_in` the first later version without the error.

    `threads` are GitHub issues, written as OWNER/NAME#NUMBER. `effect` is the measured error. If an advisory applies to
    a spec, there are three possibilities: `rule` refuses the spec; the bundle's trainer corrects the error as `runtime`
    describes; or the rule XP940 reports the advisory at the setting `location`, with the help `help`.
    """

    name: str
    package: str
    threads: tuple[str, ...]
    effect: str
    when: Mapping[str, object]
    first: str = ""
    fixed_in: str = ""
    rule: str = ""
    runtime: str = ""
    location: str = ""
    help: str = ""
    severity: str = field(default="warning")

    def concerns(self, version: str) -> bool:
        """Whether the given version of the package, such as `0.18.2`, has the error."""
        return _number(self.first) <= _number(version) and (
            not self.fixed_in or _number(version) < _number(self.fixed_in)
        )

    def of(self, stack: Stack) -> bool:
        """Whether the stack pins a version of the package that has the error."""
        return self.package in stack.pins and self.concerns(stack.pins[self.package])

    def applies(self, spec: Spec) -> bool:
        """Whether the spec satisfies all conditions in `when`, so that the advisory is about this spec."""
        return all(_has(spec, name, wanted) for name, wanted in self.when.items())

    @property
    def links(self) -> tuple[str, ...]:
        """The URLs of the GitHub issues in `threads`."""
        return tuple(f"https://github.com/{one.replace('#', '/issues/')}" for one in self.threads)


@cache
def table() -> tuple[Advisory, ...]:
    """Every advisory, in the order of advisories.toml."""
    found = read_table(stacks.__file__, "advisories.toml")
    return tuple(Advisory(**{**one, "name": name, "threads": tuple(one["threads"])}) for name, one in found.items())


def fixed_advisories(spec: Spec, before: Stack, after: Stack) -> list[Advisory]:
    """The advisories that a change from the stack `before` to the stack `after` resolves: they apply to the spec on
    `before`, but not on `after`.
    """
    return [one for one in table() if one.of(before) and not one.of(after) and one.applies(spec)]


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.partition("+")[0].split(".") if part.isdecimal())


def _has(spec: Spec, name: str, wanted: object) -> bool:
    if name.startswith(EXTRA):
        library, _, key = name[len(EXTRA) :].partition(".")
        value = spec.extra_value(library, key)
    elif name in FACTS:
        return FACTS[name](spec) is wanted
    else:
        path: Path = name  # type: ignore[assignment]  # from the table, which a test checks
        value = spec.get(path)
        if isinstance(value, tuple) and isinstance(wanted, list):  # `method.loss` may list several losses
            return any(getattr(one, "name", one) in wanted for one in value)
    return value is not None if wanted == SET else isinstance(wanted, list) and value in wanted


def _ragged(spec: Spec) -> bool:
    """Whether the last step of an epoch certainly has fewer micro-batches than `accum`. False if the number of rows is
    unknown.
    """
    rows, micro = trained(spec), spec.integer("batch.micro") * spec.replicas
    return rows is not None and spec.get("train.steps") is None and -(-rows // micro) % spec.integer("batch.accum") > 0


def _corrects_truncated(spec: Spec) -> bool:
    """Whether two conditions hold: `top_p`, `top_k` or `min_p` excludes tokens from sampling, and TRL corrects for the
    difference between the probabilities of vLLM and of the trainer (`vllm_importance_sampling_correction`).
    """
    top_p = spec.get("method.top_p")
    left_out = (top_p is not None and top_p < 1) or bool(spec.get("method.top_k")) or bool(spec.get("method.min_p"))
    return left_out and spec.extra_value("trl", "vllm_importance_sampling_correction") is not False


def _decays_norms(spec: Spec) -> bool:
    """Whether the stack's trainer applies weight decay to the model's norms, because it does not recognize them as
    norms.
    """
    known = spec.model.model_type in spec.stack.facts.decays_norms
    return known and spec.get("lora") is None and bool(spec.get("optimizer.weight_decay"))


FACTS = {
    "accumulates": lambda spec: spec.integer("batch.accum") > 1,
    "several": lambda spec: spec.hardware.world > 1,
    "on_gpu": lambda spec: not spec.on_cpu,
    "ragged": _ragged,
    "corrects_truncated": _corrects_truncated,
    "batched_evaluation": batched_evaluation,
    "decays_norms": _decays_norms,
}
"""Conditions that `when` of an advisory may contain, in addition to settings. Each is mapped to a function that tests a
spec: `accumulates = true`, for example, requires a spec with accumulation.
"""


def known(name: str) -> bool:
    """Whether `name` may be used in `when` of an advisory. Conditions of `FACTS`, settings, and arguments of `extra`
    may be used.
    """
    return name in FACTS or name in BY_PATH or name.startswith(EXTRA)
