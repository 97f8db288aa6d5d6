"""Print the arguments that one version of TRL reads from the files for this version in trl_cases.py, as a line of JSON
for each file.

PYTHONPATH=FOLDER python ask_trl_versions.py VERSION

FOLDER has this version of TRL, and the version of transformers that was current when TRL released it. torch comes from
another environment. Only the configuration classes are used.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile

sys.path.append(os.path.dirname(os.path.abspath(__file__)))

from ask_trl import ask
from trl_cases import CASES


def main() -> None:
    """Print, for each case of the installed TRL version, the arguments that TRL reads from its YAML file."""
    version = sys.argv[1]
    import trl

    assert trl.__version__.startswith(f"{version}."), trl.__version__
    for name, (of, method, text) in CASES.items():
        if of != version:
            continue
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as handle:
            handle.write(text)
            handle.flush()
            arguments = ask(method, handle.name, "--output_dir", "out")
            # the default of logging_dir has the date and the name of the machine
            found = {key: one for key, one in arguments.items() if not key.startswith("_") and key != "logging_dir"}
            print(json.dumps({"case": name, "arguments": found}, sort_keys=True))


if __name__ == "__main__":
    main()
