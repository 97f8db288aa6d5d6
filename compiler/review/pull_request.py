"""One comment on a pull request with its changes to runs. A workflow runs this module with the base's commit.

Every tracked spec is compared with its version at the merge base, so a change of a base or a data file shows in the
specs that read it. A hidden marker identifies the comment, which is updated only if its text changes. If the token may
not write, as on pull requests from forks, the text goes into the summary of the job.
"""

from __future__ import annotations

import html
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from xpc.compiler.files.inputs import UsageError
from xpc.compiler.render import render
from xpc.compiler.render.visible import visible
from xpc.compiler.review.changes import compare_operands
from xpc.compiler.review.operands import Operand, open_operand
from xpc.compiler.review.repository import Repository, find
from xpc.compiler.review.show import as_text, headline
from xpc.grammar.record import record

MARKER = "<!-- xpc: what this pull request changes in its runs -->"
MOST = 60_000
"""Maximum characters of a comment; GitHub accepts 65,536."""
PAGE = 100
"""Comments per page of GitHub's answer."""
SECONDS = 30


@record
class Entry:
    """The change of one spec: a one-line summary and the full text. `broken` if it does not compile."""

    path: str
    line: str
    text: str
    broken: bool = False


def entries(folder: str, base: str) -> Iterator[Entry]:
    """Every spec of a repository that is new, deleted, broken or a different run than at `base`. Raises UsageError."""
    repository = find(folder)
    if repository is None:
        raise UsageError(f"{folder} is not in a git repository")
    start, head = (_commit(repository, revision) for revision in (base, "HEAD"))
    fork = (repository.git("merge-base", start, head) or start.encode()).decode().strip()
    before, after = (_specs(repository, folder, commit) for commit in (fork, head))
    for path in sorted({*before, *after}):
        if path not in after:
            yield Entry(path, "deleted", "")
            continue
        now = _operand(os.path.join(folder, path))
        if not now.runs:
            yield Entry(path, "does not compile", render(now.errors, "full"), broken=True)
        elif path not in before:
            yield Entry(path, "new", "")
        else:
            was = _operand(f"{fork}:{os.path.join(folder, path)}")
            if not was.runs:
                yield Entry(path, "compiles again", "")
                continue
            found = compare_operands(was, now)
            if not found.equal:
                yield Entry(path, headline(found), as_text(found).partition("\n")[2].strip("\n"))


def _commit(repository: Repository, revision: str) -> str:
    found = repository.commit(revision)
    if found is None:
        raise UsageError(f"git does not know the commit {revision}; the workflow's checkout needs `fetch-depth: 0`")
    return found


def _specs(repository: Repository, folder: str, commit: str) -> set[str]:
    """The specs of a commit below a folder: `.xp` files with a `train` sentence, outside bundles."""
    plain = ("--no-textconv", "--no-recurse-submodules", "--no-color")  # overrides the repository's configuration
    listed = repository.git("grep", *plain, "-lzE", "^[[:space:]]*train[[:space:]]", commit, "--", "*.xp")
    names = (listed or b"").split(b"\0")
    return set(repository.below(folder, b"\0".join(one.partition(b":")[2] for one in names)))


def _operand(written: str) -> Operand:
    with open_operand(written) as one:
        return one.check(one.name)


def comment(found: list[Entry], most: int = MOST) -> str:
    """The text of the comment. The first line is the change; the last counts the specs that did not fit."""
    broken = sum(one.broken for one in found)
    parts = [f"{MARKER}\n**{_headline(found, broken)}**\n"]
    omitted = 0
    for one in found:
        part = _folded(one) if one.text else f"\n- {_plain(one.path)}: {_plain(one.line)}\n"
        if sum(map(len, parts)) + len(part) > most:
            omitted += 1
        else:
            parts.append(part)
    if omitted:
        parts.append(f"\n{omitted} more do not fit into this comment.\n")
    return "".join(parts)


def _headline(found: list[Entry], broken: int) -> str:
    if not found:
        return "No run changes."
    if len(found) == 1:
        return f"{_plain(found[0].path)}: {_plain(found[0].line)}"
    return f"{len(found)} specs change" + (f", {broken} broken" if broken else "")


def _folded(one: Entry) -> str:
    """A spec's comparison, folded below its line. The fence is longer than any in the text."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", one.text)), default=0))
    summary = f"{_plain(one.path)}: {_plain(one.line)}"
    return f"\n<details><summary>{summary}</summary>\n\n{fence}text\n{one.text.rstrip()}\n{fence}\n</details>\n"


def _plain(text: str) -> str:
    """Text with markup and @mentions escaped."""
    line = " ".join(text.split())
    return "".join(f"&#{ord(one)};" if one in "@*_`[]()!#~|\\:" else html.escape(one) for one in line)


def publish(text: str, environment: Mapping[str, str], changes: bool) -> str:
    """Create or update the comment and return what was done. Without `changes`, no comment is created."""
    with open(environment["GITHUB_EVENT_PATH"], encoding="utf-8") as handle:
        number = int(json.load(handle)["pull_request"]["number"])
    issue = f"/repos/{environment['GITHUB_REPOSITORY']}/issues"
    try:
        existing = _own_comment(environment, f"{issue}/{number}/comments")
        if existing is None:
            if not changes:
                return "nothing"
            _request(environment, "POST", f"{issue}/{number}/comments", {"body": text})
            return "written"
        if existing["body"].replace("\r\n", "\n").strip() == text.strip():
            return "unchanged"
        _request(environment, "PATCH", f"{issue}/comments/{existing['id']}", {"body": text})
        return "changed"
    except HTTPError as error:
        refused = error.code in (401, 403, 404)
        why = "the token may not write comments" if refused else f"GitHub answered {error.code}"
    except OSError as error:  # includes timeouts
        why = f"GitHub does not answer ({getattr(error, 'reason', error)})"
    with open(environment["GITHUB_STEP_SUMMARY"], "a", encoding="utf-8") as handle:
        handle.write(text)
    return f"in the summary of the job, because {why}"


def _own_comment(environment: Mapping[str, str], path: str) -> dict[str, str] | None:
    """The existing comment, whose first line is the marker."""
    page = 1
    while True:
        found = _request(environment, "GET", f"{path}?per_page={PAGE}&page={page}")
        for one in found:
            if str(one["body"]).startswith(MARKER):
                return {"id": str(one["id"]), "body": str(one["body"])}
        if len(found) < PAGE:
            return None
        page += 1


def _request(environment: Mapping[str, str], method: str, path: str, body: object = None) -> list[dict[str, object]]:
    request = Request(
        environment.get("GITHUB_API_URL", "https://api.github.com") + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "Authorization": f"Bearer {environment.get('GITHUB_TOKEN', '')}",
            "Accept": "application/vnd.github+json",
            "Content-Type": "application/json",
        },
    )
    with urlopen(request, timeout=SECONDS) as answer:
        found = json.load(answer)
    return found if isinstance(found, list) else [found]


def main(environment: Mapping[str, str], base: str) -> int:
    """Compare and publish. Returns status 1 if a spec does not compile, 2 if git fails."""
    try:
        found = list(entries(".", base))
    except UsageError as error:
        print(visible(f"xpc: {error}"), file=sys.stderr)
        return 2
    print(f"comment: {publish(comment(found), environment, bool(found))}")
    return int(any(one.broken for one in found))


if __name__ == "__main__":
    sys.exit(main(os.environ, sys.argv[1]))
