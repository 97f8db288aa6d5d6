"""A local server that replaces the Hugging Face hub. It has the parts of the hub's API that are needed to push a model.
Use it as `with Hub() as hub: ... hub.url`.

It answers the requests of huggingface_hub 0.36 and 2.4 for `whoami`, `create_repo`, `list_repo_commits`,
`create_branch` and `upload_folder` (pre-upload, git LFS's basic transfer, commits as newline-separated JSON).
`hub.repositories` contains what was pushed, and `hub.requested` the requests. The client must set
`HF_HUB_DISABLE_XET=1`, because this server has only LFS uploads.
"""

from __future__ import annotations

import base64
import json
from hashlib import sha256
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote, urlsplit

from attrs import define, field

from xpc.compiler.preview.rehearsal.local_server import LocalServer

WRITE, READ, SCOPED = "hf_write", "hf_read", "hf_scoped"
"""Access tokens of the account `me`, which is a member of the organization `team`. The first token may write, the
second may only read, and the third may write only to the repositories of `me`.
"""


@define
class Commit:
    """The files of a branch after one push."""

    id: str
    title: str
    files: dict[str, bytes]


@define
class Repository:
    """A repository of the local hub: its visibility, and the commits of each branch, oldest first."""

    private: bool | None
    branches: dict[str, list[Commit]]

    def files(self, branch: str = "main") -> dict[str, bytes]:
        """The files of a branch after its last commit."""
        return self.branches[branch][-1].files

    def titles(self, branch: str = "main") -> list[str]:
        """The messages of the branch's commits, oldest first."""
        return [one.title for one in self.branches[branch]]


@define
class Hub(LocalServer):
    """A local server that replaces the hub. It refuses all writes to the repositories `closed`, and all commits to the
    branches `broken`.
    """

    repositories: dict[str, Repository] = field(factory=dict)
    objects: dict[str, bytes] = field(factory=dict)
    closed: set[str] = field(factory=set)
    broken: set[str] = field(factory=set)
    organizations: tuple[str, ...] = ("team",)

    @property
    def handler(self) -> type[_Handler]:
        """The class that handles the HTTP requests."""
        return _Handler

    def environment(self, token: str = WRITE) -> dict[str, str]:
        """The environment variables with which huggingface_hub uses this server."""
        return {"HF_ENDPOINT": self.url, "HF_TOKEN": token, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}

    def make(self, name: str, private: bool | None = None) -> None:
        """Create a repository with an initial commit, as the hub does."""
        self.repositories[name] = Repository(private, {"main": [_commit("initial commit", {".gitattributes": b""})]})


def _commit(title: str, files: dict[str, bytes]) -> Commit:
    return Commit(sha256(repr((title, sorted(files.items()))).encode()).hexdigest()[:40], title, files)


class _Handler(BaseHTTPRequestHandler):
    """Answers one HTTP request. Requests have the same paths as in the hub's public API."""

    of: Hub
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(self.path).path)
        self.of.requested.append(f"{self.command} {path}")
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        status, answer, code = self._answer(path, body, token)
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if code:
            self.send_header("X-Error-Code", code)
        if status >= 400:
            self.send_header("X-Error-Message", answer["error"])
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = _serve  # noqa: N815

    def _answer(self, path: str, body: bytes, token: str) -> tuple[int, Any, str]:
        parts = path.strip("/").split("/")
        if parts[0] == "lfs":
            self.of.objects[parts[1]] = body
            return 200, {}, ""
        if path.endswith(".git/info/lfs/objects/batch"):
            return 200, self._batch(json.loads(body)), ""
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}, ""
        if token not in (WRITE, READ, SCOPED):
            return 401, {"error": "Invalid credentials in Authorization header"}, ""
        if path == "/api/whoami-v2":
            return 200, _who(token, self.of.organizations), ""
        if path == "/api/repos/create":
            return self._create(json.loads(body), token)
        if parts[:2] == ["api", "models"] and len(parts) >= 4:
            return self._model("/".join(parts[2:4]), parts[4:], body, token)
        return 404, {"error": "Not Found"}, ""

    def _create(self, request: dict[str, Any], token: str) -> tuple[int, Any, str]:
        name = f"{request.get('organization') or 'me'}/{request['name']}"
        made = {"url": f"{self.of.url}/{name}", "name": name}
        if name in self.of.repositories:
            return 409, {"error": "You already created this model repo", **made}, ""
        if token != WRITE or name.partition("/")[0] not in ("me", *self.of.organizations):
            return 403, {"error": f"You don't have the rights to create a model under {name.partition('/')[0]}"}, ""
        private = {"private": True, "public": False}.get(request.get("visibility", ""), request.get("private"))
        self.of.make(name, private)
        return 200, made, ""

    def _model(self, name: str, rest: list[str], body: bytes, token: str) -> tuple[int, Any, str]:
        repository = self.of.repositories.get(name)
        if repository is None:
            return 404, {"error": "Repository not found"}, "RepoNotFound"
        ask = rest[0] if rest else "info"
        if (self.command == "POST" or rest == ["auth-check", "write"]) and (
            token == READ or name in self.of.closed or (token == SCOPED and not name.startswith("me/"))
        ):
            return 403, {"error": "Forbidden: you must use a write token"}, ""
        branch = "/".join(rest[1:]) or "main"
        if ask == "auth-check":
            return 200, {}, ""
        if ask == "branch":
            return self._branch(repository, branch, json.loads(body))
        if branch not in repository.branches:
            return 404, {"error": f"Invalid rev id: {branch}"}, "RevisionNotFound"
        commits = repository.branches[branch]
        if ask == "commits":
            answers = {"authors": [], "date": "2026-01-01T00:00:00.000Z", "message": ""}
            return 200, [{"id": one.id, "title": one.title, **answers} for one in reversed(commits)], ""
        if ask == "preupload":
            files = json.loads(body)["files"]
            modes = [(one["path"], "lfs" if one["path"].endswith(".safetensors") else "regular") for one in files]
            return 200, {"files": [{"path": p, "uploadMode": m, "shouldIgnore": False} for p, m in modes]}, ""
        if ask == "commit" and branch in self.of.broken:
            return 403, {"error": "Private repository storage limit reached"}, ""
        if ask == "commit":
            commits.append(self._pushed(commits[-1], body))
            return 200, {"commitOid": commits[-1].id, "commitUrl": f"{self.of.url}/{name}/commit/{commits[-1].id}"}, ""
        siblings = [{"rfilename": one} for one in commits[-1].files]
        return 200, {"id": name, "private": bool(repository.private), "sha": commits[-1].id, "siblings": siblings}, ""

    def _branch(self, repository: Repository, branch: str, request: dict[str, Any]) -> tuple[int, Any, str]:
        if branch in repository.branches:
            return 409, {"error": "Reference already exists"}, ""
        start = request.get("startingPoint")
        known = [one for commits in repository.branches.values() for one in commits]
        found = next((one for one in known if one.id == start), repository.branches["main"][-1])
        repository.branches[branch] = [found]
        return 200, {}, ""

    def _batch(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to a batch request of LFS: for each object that the server lacks, an address for the upload."""
        answers = []
        for one in request["objects"]:
            oid, size = one["oid"], one["size"]
            href = {"upload": {"href": f"{self.of.url}/lfs/{oid}", "header": {}}}
            answers.append({"oid": oid, "size": size, **({} if oid in self.of.objects else {"actions": href})})
        return {"transfer": "basic", "objects": answers}

    def _pushed(self, before: Commit, body: bytes) -> Commit:
        files, title = dict(before.files), ""
        for line in body.splitlines():
            request = json.loads(line)
            value = request["value"]
            if request["key"] == "header":
                title = value["summary"]
            elif request["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif request["key"] == "lfsFile":
                content = self.of.objects[value["oid"]]
                assert sha256(content).hexdigest() == value["oid"], "the object is not the file that was hashed"
                files[value["path"]] = content
            else:
                raise ValueError(f"this server accepts no {request['key']}")
        return _commit(title, files)


def _who(token: str, names: tuple[str, ...]) -> dict[str, Any]:
    role: dict[str, Any] = {"role": {WRITE: "write", READ: "read", SCOPED: "fineGrained"}[token]}
    if token == SCOPED:
        role["fineGrained"] = {"scoped": [{"entity": {"type": "user", "name": "me"}, "permissions": ["repo.write"]}]}
    organizations = [{"type": "org", "name": name, "roleInOrg": "write"} for name in names]
    return {"type": "user", "name": "me", "orgs": organizations, "auth": {"accessToken": role}}
