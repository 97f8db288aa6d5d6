"""The steps of the Action and the hooks.

`BASE` writes the comment, `check [--base BASE] PATH...` checks specs, `fmt FILE...` formats those outside bundles, and
`verify FILE...` verifies the bundles and sweeps that contain the files.
"""

from __future__ import annotations

import os
import sys

from xpc.compiler.review.pull_request import main
from xpc.compiler.review.pull_request.check import check, formatted
from xpc.compiler.review.pull_request.verify import verify

PROGRAMS = {"check": check, "fmt": formatted, "verify": verify}

if __name__ == "__main__":
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    sys.exit(PROGRAMS[name](sys.argv[2:]) if name in PROGRAMS else main(os.environ, name))
