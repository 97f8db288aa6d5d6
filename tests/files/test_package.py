"""If an optional dependency is missing, a message shows a pip command that installs the extra. The command is right for
every way in which xpc may have been installed, such as from a checkout.
"""

from __future__ import annotations

import importlib.metadata
import os

from xpc.compiler.files import package

CHECKOUT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def test_a_checkout_is_installed_with_its_extra(monkeypatch, tmp_path):
    monkeypatch.chdir(CHECKOUT)
    assert package.install_command("lsp") == "pip install -e '.[lsp]'"
    monkeypatch.chdir(tmp_path)
    assert package.install_command("import") == f"pip install -e '{package.ROOT}[import]'"


def test_a_wheel_names_the_packages_because_no_index_has_xpc(monkeypatch, tmp_path):
    monkeypatch.setattr(package, "ROOT", str(tmp_path))
    needed = ["attrs>=24", "pygls==2.1.1 ; extra == 'lsp'", 'PyYAML>=6.0.1; extra == "import"', "x; extra == 'lsp2'"]
    monkeypatch.setattr(package, "requires", lambda name: needed)
    assert package.install_command("lsp") == "pip install 'pygls==2.1.1'"
    assert package.install_command("import") == "pip install 'PyYAML>=6.0.1'"


def test_a_folder_without_metadata_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setattr(package, "ROOT", str(tmp_path))

    def missing(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(package, "requires", missing)
    assert package.install_command("lsp") == "install xpc with its extra `lsp`"
