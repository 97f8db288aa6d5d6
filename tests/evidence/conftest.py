"""The cases and the proofs lie in folders of their own."""

import os
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(TESTS, name) for name in ("compiler", "proof")]
