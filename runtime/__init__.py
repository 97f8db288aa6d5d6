"""The trainer of a bundle: plain Python over TRL, for Python 3.11 and later."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036  # the modules below need it
    sys.exit(f"error: Python 3.11 or later is needed, and {sys.executable} is {sys.version.split()[0]}")
