"""The specs and the generator that the reviewing commands are tested with lie beside the tests of others."""

import os
import sys

for folder in ("proof", "compiler"):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), folder))
