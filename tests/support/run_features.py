"""Load the enabled.py of a run, which lists the run's features. Tests use it to call the runtime inside their own
process.

The runtime is the package `xpc.runtime`; in a stack's interpreter, which has no package xpc, it is `runtime`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OWN = "xpc.runtime"


def enabled(plan: Mapping[str, Any], package: str = OWN) -> ModuleType:
    """The enabled.py that the compiler writes for this trainer_args.json, imported as a module of the runtime
    ``package``.
    """
    with open(os.path.join(ROOT, "runtime", "enabled.py"), encoding="utf-8") as handle:
        source = import_module(f"{package}.core.conditions").enabled(handle.read(), plan)
    made = ModuleType(f"{package}.enabled_of_a_run")
    made.__package__ = package
    exec(compile(source, "enabled.py", "exec"), made.__dict__)
    return made


def read(folder: str, package: str = OWN) -> Any:
    """Read the bundle in a folder, with the features of its run. If trainer_args.json cannot be read, the bundle is
    read without features.
    """
    try:
        with open(os.path.join(folder, "trainer_args.json"), encoding="utf-8") as handle:
            features = enabled(json.load(handle), package).FEATURES
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        features = ()
    return import_module(f"{package}.core.bundle").read(folder, features)
