"""Different forms of a spec have the same meaning: a clause may stand after `with`, in the body, or as a call. The
order of lines and the comments do not change the meaning, either.
"""

import pytest
from case_support import spec
from compile_support import HEAD, checked, only, shown, value
from extra_arguments import NUMBER

from xpc.compiler.language import schema


def values(text):
    found = checked(text)
    assert found.spec is not None, shown(found)
    return {path: one.value for path, one in found.spec.values.items()}


SAMPLES = {
    "flag": ("true", "false"),
    "int": ("8",),
    "tokens": ("2048", "2Ki"),
    "real": ("0.5", "1e-5"),
    "steps_or_share": ("40", "3%"),
    "real_or_share": ("0.1", "10%"),
    "every": ("100", "5%", "epoch"),
    "rows_or_share": ("1000", "5%"),
    "text": ('"a b"',),
    "path": ('"out/x"',),
    "name": ("main", '"a b"'),
    "reals": ("[0.9, 0.95]",),
    "names": ("[messages]",),
    "duration": ("30m", "7200s"),
    "hardware": ("8 x a100-80gb", "2 x cpu"),
    "text_or_file": ('"be brief"',),
    "share": ("70%",),
    "targets": ("all-linear", "[q_proj, v_proj]"),
    "repository": ("model", "me/model", '"me/model"'),
}
NAMED = {
    "data.max_pixels": ("602112", "1M"),
    "model.rope": ("yarn(factor=4)",),
    "method.loss": ("dft", "[nll]"),
    "method.rewards": ("accuracy", "[accuracy(weight=1), format]"),
}


def samples():
    """For every setting that needs no other files: a pair of the setting's row in the schema, and a legal value."""
    for row in schema.TABLE:
        # A setting that names a file or an adapter's folder needs this file or folder. Other tests cover these
        # settings.
        if row.path.startswith("train.") or row.kind.name in ("file", "functions") or row.path == "lora.from":
            continue
        plain = ("trl-0.18",) if row.path == "target" else SAMPLES.get(row.kind.name, ())
        for written in NAMED.get(row.path) or row.choices or plain:
            yield row, written


def stated(text):
    """The settings that a spec itself states, even if the rules refuse their values."""
    from xpc.compiler.files.workspace import Workspace
    from xpc.compiler.language.expand import expand
    from xpc.compiler.language.load import load
    from xpc.compiler.resolve.experiment import resolve
    from xpc.compiler.rules.core.legality import error_codes
    from xpc.grammar.source import Source

    loaded = load(Source("t.xp", text), Workspace("/no-such-folder"))
    assert not loaded.problems, [one.message for one in loaded.problems]
    assert not expand(loaded.file).problems
    resolved, problems = resolve(loaded, Workspace("/no-such-folder"), error_codes)
    assert resolved is not None
    assert not [one for one in problems if one.severity == "error"], [one.message for one in problems]
    return {path: one.value for path, one in resolved.values.items()}, resolved.hardware


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted({row.path for row, _ in samples()}))
def test_with_body_and_call_say_the_same(path):
    for row, written in samples():
        if row.path == path:
            forms_say_the_same(row, written)


def forms_say_the_same(row, written):
    header = f"train qwen2.5-3b on {'alpaca' if row.path in ('data.prompt', 'data.context') else 'infinity-instruct'}"
    also = f"{header} with"
    if row.methods and "sft" not in row.methods:
        header = f"{header} with {row.methods[0]}"
        also = header
    parts = row.path.split(".")
    forms = []
    if row.head:
        forms.append(f"{header}\n{row.path} {written}\n")
        if not written.startswith(('"', "[")) and " " not in written:
            forms.append(f"{also} {row.path}({written})\n")
        forms.append(f"{header}\n{row.path} = {written}\n")
    elif len(parts) == 2:
        forms.append(f"{header}\n{parts[0]} {{\n  {row.name} = {written}\n}}\n")
        forms.append(f"{header}\n{parts[0]}({row.name}={written})\n")
        forms.append(f"{header}\n{parts[0]} {row.name}={written}\n")
        forms.append(f"{also} {parts[0]}({row.name}={written})\n")
        if row.path not in ("data.seed", "eval.micro"):  # tested below
            forms.append(f"{also} {parts[0]} {row.name}={written}\n")
        if not row.inner:
            forms.append(f"{also} {row.name}={written}\n")
            forms.append(f"{header}\n{row.name} = {written}\n")
        if row.kind.name == "flag" and written == "true":
            forms.append(f"{header}\n{parts[0]} {{\n  {row.name}\n}}\n")
            forms.append(f"{header}\n{parts[0]}({row.name})\n")
    else:
        forms.append(f"{header}\n{parts[0]} {{\n  {parts[1]} {{\n    {row.name} = {written}\n  }}\n}}\n")
        forms.append(f"{header}\n{parts[0]} {{\n  {parts[1]}({row.name}={written})\n}}\n")
        forms.append(f"{also} {parts[1]}({row.name}={written})\n")
        forms.append(f"{also} {parts[0]} {parts[1]}({row.name}={written})\n")
    if row.choices and row.bare and written != "none":
        forms.append(f"{also} {written}\n")
        forms.append(f"{header}\n{written}\n")
    first, hardware = stated(forms[0])
    assert row.path in first
    for form in forms[1:]:
        again, same = stated(form)
        assert (again, same) == (first, hardware), form


def test_a_bare_choice_takes_the_settings_of_its_clause():
    assert values(spec(strategy="zero2(overlap_comm=false)")) == values(
        spec(strategy="zero2").replace("strategy zero2", "zero2(overlap_comm=false)")
    )
    assert value(HEAD + 'wandb(name="x")\n', "track.name") == "x"


def test_settings_after_a_name_of_the_sentence_belong_to_it():
    """In `with lora rank=8`, `rank` is a setting of `lora`. The settings of `lora` end at the first word that is not
    one of them.
    """
    lines = [
        'track wandb name="x" every=5',
        "launch slurm time=12h requeue",
        "lora rank=8 alpha=16",
        "zero2 overlap_comm=false",
        'save "out/x" every=100 keep=2',
        f"extra trl {NUMBER}=5",
        "packing isolate=mask",
        "gbs=64",
    ]
    header = "train qwen2.5-3b on infinity-instruct"
    body, inline = ("\n".join([header, *lines]) + "\n"), f"{header} with {' '.join(lines)}\n"
    assert values(inline) == values(body)
    assert checked(inline).spec.extra["trl"][NUMBER].value == 5
    swept = (f"{header} with sweep lr=[1e-6, 2e-6] gbs=64\n", f"{header}\nsweep lr=[1e-6, 2e-6]\ngbs = 64\n")
    assert [[one.name for one in checked(text).members] for text in swept] == [["lr=1e-06", "lr=2e-06"]] * 2
    # A bare `strategy` is the clause, not the setting of another clause. `micro` after `eval` could also mean
    # `batch.micro`, so it is refused.
    assert value(f"{header} with flash2 packing strategy=zero3\n", "strategy") == "zero3"
    for written, form in (("eval split=test micro=8", "eval(micro=8)"), ("data seed=3", "data(seed=3)")):
        (found,) = [one for one in checked(f"{header} with {written}\n").problems if one.severity == "error"]
        assert f"write `{form}`, or " in found.help


def test_every_choice_belongs_to_one_setting():
    seen: dict[str, str] = {}
    for row in schema.TABLE:
        for name in row.choices if row.bare else ():
            if name != "none":
                assert name not in seen, (name, row.path, seen.get(name))
                seen[name] = row.path
    taken = {row.name for row in schema.TABLE if not row.inner} & set(seen)
    assert not taken


@pytest.mark.parametrize("row", [*schema.children("launch")], ids=lambda row: row.path)
def test_settings_of_an_engine_stand_only_inside_of_launch(row):
    found = checked(f"train qwen2.5-3b on alpaca for 1 epochs with {row.name}=7\n")
    assert only(found, "XP102").message == f"`{row.name}` belongs inside a clause"


def test_comments_mean_nothing():
    text = spec()
    assert values("# a\n" + text.replace("\n", '  # c { [ " = \n')) == values(text)


def test_the_order_of_clauses_means_nothing():
    lines = spec().splitlines()
    assert values("\n".join([*lines[:3], *reversed(lines[3:])]) + "\n") == values(spec())
