"""The rule about versions of libraries that are known to compute a wrong result. It reports only errors for which no
other rule refuses the spec (XP940).
"""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.rules.core.advisory_table import EXTRA, table
from xpc.compiler.rules.core.conditions import has_advisory
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec

WHEN = has_advisory


@rule(
    "XP940",
    "known-to-compute-wrongly",
    "warning",
    reads=(
        "batch.accum",
        "batch.micro",
        "batch.packing",
        "data.holdout",
        "data.long",
        "eval.data",
        "eval.micro",
        "eval.split",
        "lora",
        "method",
        "method.loss",
        "method.mask_truncated",
        "method.min_p",
        "method.top_k",
        "method.top_p",
        "method.vllm",
        "optimizer.weight_decay",
        "precision",
        "strategy",
        "strategy.context_parallel",
        "strategy.overlap_comm",
        "train.steps",
    ),
)
def known_wrong(spec: Spec) -> Iterator[Finding]:
    """The target pins a version of a library that is known to compute a wrong result for this spec. `xpc list
    advisories` prints all such errors with their GitHub issues, versions and measured sizes. An error is not reported
    here if another rule refuses the spec, or if the bundle's trainer corrects the result.

    Why it is bad: the results are wrong.

    Without this rule: nothing is reported.

    Source: the GitHub issues that the finding names, and the installed sources of the pinned versions.
    """
    for one in table():
        if one.rule or one.runtime or not one.of(spec.stack) or not one.applies(spec):
            continue
        version = f"{one.package} {spec.stack.pins[one.package]}"
        if one.location.startswith(EXTRA):
            _, library, key = one.location.split(".", 2)
            location = spec.extra_location(library, key, version)
        else:
            location = spec.location(one.location, version)  # type: ignore[arg-type]  # a test checks the places of the table
        yield Finding(
            location,
            f"{one.effect} ({one.threads[0]})",
            one.help,
            (spec.label("target", "the target"),),
            severity=one.severity,
        )
