"""Publish the comment through GitHub's API, or in the job summary if the token may not write comments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import Request, urlopen

MARKER = "<!-- xpc: what this pull request changes in its runs -->"
"""The first line of the comment on a pull request, by which a later run of the action finds the comment."""
PAGE = 100
"""The number of comments that one request to GitHub asks for."""
TRUSTED = ("OWNER", "MEMBER", "COLLABORATOR")
"""Values of `author_association` that allow trust: these people may have the right to write to the repository."""
SECONDS = 30


def publish(text: str, environment: Mapping[str, str], changes: bool) -> str:
    """Create or update the comment, and return a sentence on what was done. Without `changes`, only an existing comment
    is updated, and none is created. Outside of GitHub, the sentence ends with the text.
    """
    if "GITHUB_EVENT_PATH" not in environment:
        return f"not written, because this process is not a job of GitHub Actions:\n\n{text}"
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
    except (OSError, HTTPException) as error:  # a timeout is an OSError, too
        why = f"GitHub does not answer ({getattr(error, 'reason', error)})"
    except (ValueError, RecursionError):
        why = "GitHub's answer is not JSON"
    with open(environment["GITHUB_STEP_SUMMARY"], "a", encoding="utf-8") as handle:
        handle.write(text)
    return f"in the summary of the job, because {why}"


def _own_comment(environment: Mapping[str, str], path: str) -> dict[str, str] | None:
    """Find the comment that an earlier run of this program wrote, by the marker in its first line. None if there is no
    such comment.

    Only comments by bots and by people with rights in the repository count (the author of a workflow's own comment is a
    bot). If comments by any author counted, a stranger could write a comment with the marker, wait until this program
    has written its text into it, and then edit it.
    """
    page = 1
    while True:
        found = _request(environment, "GET", f"{path}?per_page={PAGE}&page={page}")
        for one in found:
            user = one.get("user")
            bot = isinstance(user, dict) and user.get("type") == "Bot"
            if str(one.get("body")).startswith(MARKER) and (bot or one.get("author_association") in TRUSTED):
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
            "Authorization": f"Bearer {environment.get('GITHUB_TOKEN', '').strip()}",
            "Accept": "application/vnd.github+json",
            "Content-Type": "application/json",
        },
    )
    with urlopen(request, timeout=SECONDS) as answer:
        found = json.load(answer)
    return [one for one in (found if isinstance(found, list) else [found]) if isinstance(one, dict)]
