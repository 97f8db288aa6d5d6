"""Load a bundle's model on this machine with a fake `kernels` package: `loaded_kernels.py BUNDLE VERSION`.

Run this program with the interpreter of a stack. Its last line of output is a JSON list of the requests that the fake
package got.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile

SUPPORT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support")
PACKAGE = """\
ASKED = []


def get_kernel(repo_id, revision=None, version=None, **_):
    import flash

    ASKED.append({"id": repo_id, "revision": revision, "version": version})
    return flash


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return (lambda *_, **__: lambda decorated: decorated) if name.startswith("use_") else Anything()


class Anything:
    def __call__(self, *_, **__):
        return self

    def __getattr__(self, name):
        return self

    def __or__(self, other):
        return self
"""


def stand_in(version: str) -> None:
    """Install a fake package `kernels` that transformers takes for the real one."""
    folder = tempfile.mkdtemp()
    about = os.path.join(folder, f"kernels-{version}.dist-info")
    os.makedirs(about)
    with open(os.path.join(folder, "kernels.py"), "w", encoding="utf-8") as handle:
        handle.write(PACKAGE)
    for name, text in {
        "METADATA": f"Metadata-Version: 2.1\nName: kernels\nVersion: {version}\n",
        "top_level.txt": "kernels\n",
    }.items():
        with open(os.path.join(about, name), "w", encoding="utf-8") as handle:
            handle.write(text)
    sys.path[:0] = [folder, SUPPORT]


if __name__ == "__main__":
    stand_in(sys.argv[2])
    sys.path.insert(0, sys.argv[1])
    import kernels  # type: ignore[import-not-found]
    from tiny import build
    from trainer.core import bundle, model  # type: ignore[import-not-found]
    from trainer.enabled import FEATURES  # type: ignore[import-not-found]

    build("tiny")
    made = bundle.read(sys.argv[1], FEATURES)
    model.load_model(made, model.load_tokenizer(made))
    print("\n" + json.dumps(kernels.ASKED))
