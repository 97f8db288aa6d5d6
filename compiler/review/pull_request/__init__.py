"""Write the comment on a pull request. It says how the changes of the pull request affect runs. This folder also
contains the programs that the GitHub Action and the pre-commit hooks start.

Every spec that the pull request changes or affects is compared with its version at the merge base. The comment contains
a hidden marker. A later run of the action finds the comment by this marker, and updates it if its text has changed. For
a pull request from a fork, the token may not write comments, and the text is written to the job summary instead.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from xpc.compiler.files.inputs import UsageError
from xpc.compiler.plan.price import prices
from xpc.compiler.render.output import show
from xpc.compiler.review.pull_request.comment import comment as comment
from xpc.compiler.review.pull_request.entries import Entry as Entry
from xpc.compiler.review.pull_request.entries import entries as entries
from xpc.compiler.review.pull_request.github import MARKER as MARKER
from xpc.compiler.review.pull_request.github import publish as publish


def main(environment: Mapping[str, str], base: str) -> int:
    """Compare the specs and publish the comment. Returns 1 if an affected spec does not compile, 2 if git fails."""
    try:
        found = list(entries(".", base, prices(environment["PRICE"]) if environment.get("PRICE") else None))
    except (UsageError, ValueError) as error:
        show(f"xpc: {error}", sys.stderr)
        return 2
    show(f"comment: {publish(comment(found), environment, bool(found))}")
    return int(any(one.broken for one in found))


__all__ = ["MARKER", "Entry", "comment", "entries", "main", "os", "publish"]
