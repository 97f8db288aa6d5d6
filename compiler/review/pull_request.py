"""One comment on a pull request: what it changes in the runs. A workflow runs it as a module, with the base's commit.

Every tracked spec is compared with itself at the merge base, so a change of a base or a data file shows in the specs
that read it. The comment is found again by a hidden marker and written only when it says something else than before.
Where the token may not write, as on pull requests from forks, the text goes into the summary of the job.
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
"""Characters of a comment; GitHub takes 65,536."""
PAGE = 100
"""Comments that GitHub gives at once."""
SECONDS = 30


@record
class Entry:
    """What became of one spec: a line, and the whole in a text. `broken` says that it does not compile."""

    path: str
    line: str
    text: str
    broken: bool = False


def entries(folder: str, base: str) -> Iterator[Entry]:
    """Every spec of a repository that is new, gone, broken or another run than at a commit. Raises UsageError."""
    repository = find(folder)
    if repository is None:
        raise UsageError(f"{folder} is in no git repository")
    start, head = (_commit(repository, revision) for revision in (base, "HEAD"))
    fork = (repository.git("merge-base", start, head) or start.encode()).decode().strip()
    before, after = (_specs(repository, folder, commit) for commit in (fork, head))
    for path in sorted({*before, *after}):
        if path not in after:
            yield Entry(path, "is gone", "")
            continue
        now = _operand(os.path.join(folder, path))
        if not now.runs:
            yield Entry(path, "does not compile", render(now.errors, "full"), broken=True)
        elif path not in before:
            yield Entry(path, "is new", "")
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
        raise UsageError(f"git knows no commit {revision} here; a workflow needs `fetch-depth: 0`")
    return found


def _specs(repository: Repository, folder: str, commit: str) -> set[str]:
    """The specs of a commit below a folder: files `.xp` with a `train` sentence, outside of bundles."""
    plain = ("--no-textconv", "--no-recurse-submodules", "--no-color")  # whatever the repository's configuration says
    listed = repository.git("grep", *plain, "-lzE", "^[[:space:]]*train[[:space:]]", commit, "--", "*.xp")
    names = (listed or b"").split(b"\0")
    return set(repository.below(folder, b"\0".join(one.partition(b":")[2] for one in names)))


def _operand(written: str) -> Operand:
    with open_operand(written) as one:
        return one.check(one.name)


def comment(found: list[Entry], most: int = MOST) -> str:
    """The text of the comment. The first line is the change; what does not fit is counted at the end."""
    broken = sum(one.broken for one in found)
    parts = [f"{MARKER}\n**{_headline(found, broken)}**\n"]
    left = 0
    for one in found:
        part = _folded(one) if one.text else f"\n- {_plain(one.path)}: {_plain(one.line)}\n"
        if sum(map(len, parts)) + len(part) > most:
            left += 1
        else:
            parts.append(part)
    if left:
        parts.append(f"\n{left} more; the comment has no room for them.\n")
    return "".join(parts)


def _headline(found: list[Entry], broken: int) -> str:
    if not found:
        return "No run changes."
    if len(found) == 1:
        return f"{_plain(found[0].path)}: {_plain(found[0].line)}"
    return f"{len(found)} specs change" + (f", {broken} of them do not compile" if broken else "")


def _folded(one: Entry) -> str:
    """A spec's comparison behind its line. The fence is longer than any in the text."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", one.text)), default=0))
    summary = f"{_plain(one.path)}: {_plain(one.line)}"
    return f"\n<details><summary>{summary}</summary>\n\n{fence}text\n{one.text.rstrip()}\n{fence}\n</details>\n"


def _plain(text: str) -> str:
    """Text that is no markup and calls nobody."""
    line = " ".join(text.split())
    return "".join(f"&#{ord(one)};" if one in "@*_`[]()!#~|\\:" else html.escape(one) for one in line)


def publish(text: str, environment: Mapping[str, str], changes: bool) -> str:
    """Writes the comment or changes it; in one word what was done. Without `changes` none is begun."""
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
    except OSError as error:  # no answer, or none within SECONDS
        why = f"GitHub does not answer ({getattr(error, 'reason', error)})"
    with open(environment["GITHUB_STEP_SUMMARY"], "a", encoding="utf-8") as handle:
        handle.write(text)
    return f"in the summary of the job, since {why}"


def _own_comment(environment: Mapping[str, str], path: str) -> dict[str, str] | None:
    """The comment with the marker on its first line."""
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
    """Compares, publishes, says what was done. Status 1 where a spec does not compile, 2 where git cannot answer."""
    try:
        found = list(entries(".", base))
    except UsageError as error:
        print(visible(f"xpc: {error}"), file=sys.stderr)
        return 2
    print(f"comment: {publish(comment(found), environment, bool(found))}")
    return int(any(one.broken for one in found))


if __name__ == "__main__":
    sys.exit(main(os.environ, sys.argv[1]))
