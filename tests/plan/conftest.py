"""The modules beside the tests are imported by their own names."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
