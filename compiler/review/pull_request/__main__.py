"""The commands that the GitHub Action and the pre-commit hooks start.

With a commit as the only argument, the comment about the changes since this commit is written. `check [--base BASE]
PATH...` checks specs. `fmt FILE...` formats the specs that are not in bundles. `verify FILE...` verifies the bundles,
sweeps, locks and finished runs to which the files belong. `verify --all PATH...` verifies all bundles, sweeps, locks
and finished runs below the paths.
"""

from __future__ import annotations

import os
import sys

from xpc.compiler.files.inputs import UsageError
from xpc.compiler.render.output import show
from xpc.compiler.review.pull_request import main
from xpc.compiler.review.pull_request.check import check, formatted
from xpc.compiler.review.pull_request.verify import verify

PROGRAMS = {"check": check, "fmt": formatted, "verify": verify}

if __name__ == "__main__":
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    try:
        sys.exit(PROGRAMS[name](sys.argv[2:]) if name in PROGRAMS else main(os.environ, name))
    except UsageError as error:
        show(f"xpc: {error}", sys.stderr)
        sys.exit(2)
