"""`xpc diff` and `xpc verify` give the right verdict on random edits of bundles, members of sweeps, specs and locks.
The kind of an edit decides the verdict, so each kind states the verdicts that are right for it.

The same XPC_SEED gives the same edits again.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from compile_support import put
from test_known_edits import BROKEN, CODE, DIFFERS, FILES, PIP, SAME, compared, lock, verified
from test_known_edits import bundles as bundles

pytestmark = pytest.mark.nightly

DRAWN = int(os.environ.get("XPC_SEED", random.SystemRandom().randrange(2**31)))
EDITS = 200
FACTS = ("target", "stack", "trainer")
"""Tables of trainer_args.json that `xpc diff` leaves out, because they follow from other values."""
Judged = tuple[str, set[int]]
"""A description of a random edit, and the set of verdicts that are right for it."""


def chosen(draw: random.Random, folder: Path, pattern: str) -> Path | None:
    found = sorted(one for one in folder.rglob("*") if re.fullmatch(pattern, one.relative_to(folder).as_posix()))
    return draw.choice(found) if found else None


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if not isinstance(value, dict | list) or not value:
        yield path
        return
    for key, one in value.items() if isinstance(value, dict) else enumerate(value):
        yield from leaves(one, (*path, key))


def a_value(draw: random.Random, file: Path) -> Judged:
    table = json.loads(file.read_text())
    path = draw.choice(list(leaves(table)))
    where = table
    for key in path[:-1]:
        where = where[key]
    old = where[path[-1]]
    where[path[-1]] = not old if isinstance(old, bool) else 2 * old + 1 if isinstance(old, int | float) else f"{old}x"
    file.write_text(json.dumps(table))
    fact = path[0] in FACTS or path[:2] == ("run", "flops")
    return f"{file.name} {path}", {SAME, CODE, DIFFERS} if fact else {DIFFERS}


def a_line_of_code(draw: random.Random, file: Path) -> Judged:
    lines = file.read_text().split("\n")
    lines.insert(draw.randrange(1, len(lines)), draw.choice(["# a", "", " "]))
    file.write_text("\n".join(lines))
    return file.name, {CODE}


def a_row(draw: random.Random, file: Path) -> Judged:
    rows = file.read_text().split("\n")
    at = draw.randrange(len(rows) - 1)
    rows[at] = draw.choice([rows[at].replace('"q', '"z', 1), rows[at] + " "])
    file.write_text("\n".join(rows))
    return f"row {at}", {DIFFERS}


def a_template_or_reward(draw: random.Random, file: Path) -> Judged:
    text = file.read_text()
    at = draw.randrange(len(text))
    file.write_text(f"{text[:at]}{draw.choice('ab ')}{text[at:]}")
    return f"{file.name} at {at}", {DIFFERS, BROKEN}  # BROKEN: the edited file may not be valid Python


def a_version(draw: random.Random, file: Path) -> Judged:
    lines = file.read_text().split("\n")
    at = draw.choice([one for one, line in enumerate(lines) if "==" in line and not line.startswith("#")])
    lines[at] = re.sub(r"==(\d+)", lambda found: f"=={int(found[1]) + 1}", lines[at])
    file.write_text("\n".join(lines))
    return lines[at], {CODE}


def a_comment_on_a_version(draw: random.Random, file: Path) -> Judged:
    lines = file.read_text().split("\n")
    at = draw.choice([one for one, line in enumerate(lines) if "==" in line and not line.startswith("#")])
    lines[at] += "  # mine"
    file.write_text("\n".join(lines))
    return lines[at], {SAME}


def another_layout(draw: random.Random, file: Path) -> Judged:
    table = json.loads(file.read_text())
    file.write_text(json.dumps(draw.choice([table, dict(reversed(table.items()))]), indent=draw.choice([None, 1, 3])))
    return file.name, {SAME}


def a_value_of_yaml(draw: random.Random, file: Path) -> Judged:
    lines = file.read_text().split("\n")
    at = draw.choice([one for one, line in enumerate(lines) if re.match(r" *\w+: \S", line)])
    lines[at] = re.sub(": .*", ": 77", lines[at])
    file.write_text("\n".join(lines))
    return lines[at], {DIFFERS}


def prose(_: random.Random, file: Path) -> Judged:
    file.write_text(file.read_text() + "x\n")
    return file.name, {SAME}


def gone(_: random.Random, file: Path) -> Judged:
    file.unlink()
    return f"no {file.name}", {CODE}


def added(draw: random.Random, file: Path) -> Judged:
    name = draw.choice(["zz.py", ".hidden", "zz.sh", "zz.json", "sitecustomize.py"])
    put(file.parent, {name: "x\n"})
    return f"{name} next to {file.name}", {CODE}


def not_executable(_: random.Random, file: Path) -> Judged:
    file.chmod(0o644)
    return file.name, {CODE}


def a_digest(draw: random.Random, file: Path) -> Judged:
    text = file.read_text()
    found = draw.choice(list(re.finditer("sha256:[0-9a-f]{64}", text)))
    file.write_text(f"{text[: found.start()]}sha256:{'0' * 64}{text[found.end() :]}")
    # SAME is right if the digest belongs to a README, which does not affect the run
    return f"digest at {found.start()}", {SAME, CODE}


TRAINER = r"trainer/.*\.py"
KINDS: list[tuple[Callable[[random.Random, Path], Judged], str]] = [
    (a_value, r"(trainer_args|deepspeed)\.json"), (a_value, r"trainer_args\.json"), (a_line_of_code, TRAINER),
    (a_row, r"data/.*\.jsonl"), (a_template_or_reward, r"files/.*"), (a_version, re.escape(PIP)),
    (a_comment_on_a_version, re.escape(PIP)), (another_layout, r"(trainer_args|deepspeed)\.json"),
    (a_value_of_yaml, r"accelerate\.yaml"), (prose, r"(README|model_card)\.md"), (gone, rf"{TRAINER}|launch\.sh"),
    (added, TRAINER), (not_executable, r"launch\.sh"), (a_digest, r"bundle\.toml"), (a_line_of_code, r"launch\.sh"),
]  # fmt: skip


def doubled(draw: random.Random, text: str) -> str:
    found = draw.choice(list(re.finditer(r"(?:gbs|micro|seq|generations)=(\d+)", text)))
    return f"{text[: found.start(1)]}{2 * int(found[1])}{text[found.end(1) :]}"


def shuffled(draw: random.Random, text: str) -> str:
    lines = text.rstrip("\n").split("\n")
    return "\n".join([*lines[:4], *draw.sample(lines[4:], len(lines) - 4), ""])


SPECS: list[tuple[Callable[[random.Random, str], str], set[int]]] = [
    (doubled, {DIFFERS, BROKEN}), (shuffled, {SAME}), (lambda _, text: f"{text}seed 42\n", {SAME}),
    (lambda draw, text: f"{text}seed {draw.randrange(43, 10**6)}\n", {DIFFERS}),
    (lambda draw, text: text.replace("\n", "\n# a\n" if draw.random() < 0.5 else "\n\n", 3), {SAME}),
    (lambda draw, text: text.replace("for 1 epoch", f"for {draw.randrange(2, 9)} epochs"), {DIFFERS}),
    (lambda _, text: re.sub(r'save "out/\w+"', 'save "out/zz"', text), {DIFFERS}),
    (lambda _, text: text.replace("2 x a100", "4 x a100"), {DIFFERS, BROKEN}),
    (lambda _, text: text.replace("bf16", "fp32"), {DIFFERS, BROKEN}),
]  # fmt: skip
LOCKS: list[tuple[Callable[[str], str], set[int]]] = [
    (lambda text: text.replace("trl==1.16.0", "trl==1.16.1"), {CODE}), (lambda text: f"{text}# a\n", {SAME}),
    (lambda text: text.replace("a" * 40, "b" * 40), {DIFFERS}),
    (lambda text: text.replace('"numpy==2.4.6", ', ""), {CODE}),
    (lambda text: text.replace('"numpy', '"zz==1", "NumPy'), {CODE}),
    (lambda text: text.replace("a" * 40, "a" * 39 + "z"), {BROKEN}),
]  # fmt: skip


def edit_of_a_bundle(draw: random.Random, bundles: Path, folder: Path) -> None:
    name = draw.choice(["a", "g", "s"])
    shutil.copytree(bundles / f"{name}.bundle", folder / "x")
    edited = folder / "x"
    if name == "s":
        edited = draw.choice(sorted((edited / "members").iterdir()))
    change, pattern = draw.choice(KINDS)
    file = chosen(draw, edited, pattern)
    if file is None:
        return
    what, right = change(draw, file)
    for pair in ((bundles / f"{name}.bundle", folder / "x"), (folder / "x", bundles / f"{name}.bundle")):
        out, status = compared(*pair)
        assert status in right, (DRAWN, name, what, out)
    assert not verified(folder / "x"), (DRAWN, name, what)


def edit_of_a_spec(draw: random.Random, folder: Path) -> None:
    name = draw.choice(["a.xp", "g.xp"])
    change, right = draw.choice(SPECS)
    texts = {name: FILES[name]}, {name: change(draw, FILES[name])}
    if draw.random() < 0.3:
        name = "a.xp"
        turn, right = draw.choice(LOCKS)
        texts = {"a.xp.lock": lock()}, {"a.xp.lock": turn(lock())}
    for one, text in zip(("one", "other"), texts, strict=True):
        put(folder / one, {**FILES, **text})
    for pair in (("one", "other"), ("other", "one")):
        out, status = compared(*(folder / one / name for one in pair))
        assert status in right, (DRAWN, texts[1], out)


@pytest.mark.parametrize("number", range(EDITS))
def test_a_drawn_edit_gets_the_right_verdict(number: int, bundles: Path, tmp_path: Path) -> None:
    draw = random.Random(f"{DRAWN} {number}")
    if draw.random() < 0.6:
        edit_of_a_bundle(draw, bundles, tmp_path)
    else:
        edit_of_a_spec(draw, tmp_path)
