"""`extends`: a spec replaces single settings of its base. A circle of bases is an error. A path in a base is relative
to the base's own file.
"""

import pytest
from case_support import ROW, spec
from compile_support import (
    CHATML,
    checked,
    compiled,
    errors,
    only,
    put,
    shown,
)

from xpc.compiler.language.items import BASE, SPEC

BASE_TEXT = """\
train qwen2.5-3b on mix for 3 epochs
hardware 8 x h100-80gb
zero2
bf16
batch gbs=128 micro=16
optimizer adamw {
  lr = 1e-5
  betas = [0.9, 0.95]
}
data mix {
  infinity-instruct
  capybara
}
seed 7
"""


def test_a_child_replaces_setting_by_setting(tmp_path):
    root = put(tmp_path, {"base.xp": BASE_TEXT})
    found = checked('xpc 1\nextends "base.xp"\noptimizer {\n  lr = 2e-5\n}\n', root)
    assert found.spec is not None, shown(found)
    lr, betas, seed = (found.spec.values[path] for path in ("optimizer.lr", "optimizer.betas", "seed"))
    assert (lr.value, lr.origin.kind, lr.origin.describe()) == (2e-5, SPEC, "t.xp:4")
    assert (betas.value, betas.origin.kind, betas.origin.describe()) == ((0.9, 0.95), BASE, "base.xp:8")
    assert (seed.value, seed.origin.describe()) == (7, "base.xp:14")


def test_lists_replace_lists(tmp_path):
    root = put(tmp_path, {"base.xp": BASE_TEXT})
    found = checked('xpc 1\nextends "base.xp"\noptimizer(betas=[0.8, 0.9])\ndata mix {\n  openhermes-2.5\n}\n', root)
    assert found.spec is not None, shown(found)
    assert found.spec.get("optimizer.betas") == (0.8, 0.9)
    assert [source.id for source in found.spec.data] == ["teknium/OpenHermes-2.5"]


def test_a_child_may_say_what_is_trained_and_for_how_long(tmp_path):
    root = put(tmp_path, {"base.xp": BASE_TEXT})
    found = checked('xpc 1\nextends "base.xp"\ntrain qwen2.5-7b on mix for 100 steps\n', root)
    assert found.spec is not None, shown(found)
    assert found.spec.model.id == "Qwen/Qwen2.5-7B"
    assert found.spec.get("train.steps") == 100
    assert found.spec.get("train.epochs") is None


def chain(length):
    files = {f"b{n}.xp": f'extends "b{n + 1}.xp"\n' for n in range(1, length)}
    return {**files, f"b{length}.xp": BASE_TEXT}


def test_four_bases_are_enough(tmp_path):
    four, five = put(tmp_path / "4", chain(4)), put(tmp_path / "5", chain(5))
    assert checked('xpc 1\nextends "b1.xp"\n', four).spec is not None
    assert "XP115" in errors(checked('xpc 1\nextends "b1.xp"\n', five))


def test_cycles_and_missing_bases(tmp_path):
    root = put(tmp_path, {"a.xp": 'extends "b.xp"\n', "b.xp": 'extends "a.xp"\n', "t.xp": ""})
    assert errors(checked(spec().replace("xpc 1\n", 'xpc 1\nextends "a.xp"\n'), root)) == ["XP115"]
    assert errors(checked(spec().replace("xpc 1\n", 'xpc 1\nextends "t.xp"\n'), root)) == ["XP115"]
    assert errors(checked(spec().replace("xpc 1\n", 'xpc 1\nextends "none.xp"\n'), root)) == ["XP114"]


def test_errors_of_a_base_are_shown_in_the_base(tmp_path):
    root = put(tmp_path, {"bases/base.xp": BASE_TEXT.replace("lr =", "lrr =")})
    one = only(checked('xpc 1\nextends "bases/base.xp"\n', root), "XP101")
    assert one.primary is not None
    assert one.primary.source.name == "bases/base.xp"


def test_files_are_relative_to_the_file_that_names_them(tmp_path):
    root = put(
        tmp_path,
        {
            "bases/base.xp": 'extends "more/deep.xp"\nmodel(chat_template=file("chatml.jinja"))\n',
            "bases/chatml.jinja": CHATML,
            "bases/more/deep.xp": BASE_TEXT,
        },
    )
    files = compiled('xpc 1\nextends "bases/base.xp"\n', root)
    assert [data for name, data in files.items() if name.startswith("files/")] == [CHATML.encode()]
    assert "XP114" in errors(checked(spec('model(chat_template=file("chatml.jinja"))'), root))


@pytest.mark.parametrize(
    ("line", "code", "path"),
    [
        ('train qwen2.5-3b on "data/rows.jsonl"', "XP123", "data/rows.jsonl"),
        ('train "data/model" on alpaca', "XP118", "data/model"),
        ('train qwen2.5-3b on alpaca\nlora(from = "data/model")', "XP930", "data/model"),
    ],
    ids=["data", "model", "adapter"],
)
def test_a_path_that_exists_only_next_to_the_base_gets_a_help_with_the_right_path(tmp_path, line, code, path):
    """Paths of data and models are relative to the spec, paths of other files to the file that names them."""
    put(tmp_path, {"house/base.xp": f"{line}\n", "house/data/rows.jsonl": ROW, "house/data/model/a.txt": ""})
    text = 'xpc 1\nextends "house/base.xp"\nhardware 8 x h100-80gb\n'
    found = only(checked(text, tmp_path), code)
    assert found.help == f'a path in an extended spec is relative to the spec that extends it: write `"house/{path}"`'
    here = text.replace("house/base.xp", "base.xp")  # next to the base, the same path is right
    assert not any("in an extended spec" in (one.help or "") for one in checked(here, tmp_path / "house").problems)
