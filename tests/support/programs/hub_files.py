"""A local server that replaces the Hugging Face hub for downloads: `with HubFiles() as hub`, `hub.environment`.

It answers the requests of huggingface_hub 0.36 and 2.4 and datasets 5 for revisions, trees, paths and files.
"""

from __future__ import annotations

import json
from hashlib import sha1
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from attrs import define, field

from xpc.compiler.preview.rehearsal.local_server import LocalServer


@define
class HubFiles(LocalServer):
    """A server that stands in for the hub. `commits` maps ("models", "org/name") to the files of each commit;
    `requested` lists the requests. If the path of a file is in `broken`, only the first half of the file is sent, as if
    the connection broke.
    """

    commits: dict[tuple[str, str], dict[str, dict[str, bytes]]] = field(factory=dict)
    broken: set[str] = field(factory=set)

    @property
    def handler(self) -> type[_Handler]:
        return _Handler

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that make the hub's client use this server."""
        return {"HF_ENDPOINT": self.url, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1", "HF_TOKEN": ""}

    def push(self, kind: str, name: str, files: dict[str, bytes]) -> str:
        """Add a commit with these files to the branch `main`; return the commit's id."""
        commit = sha1(repr(sorted(files.items())).encode()).hexdigest()
        self.commits.setdefault((kind, name), {})[commit] = files
        return commit


class _Handler(BaseHTTPRequestHandler):
    """Answers one request. The paths of requests are those of the hub's public API."""

    of: HubFiles
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(self.path).path)
        self.of.requested.append(f"{self.command} {path}")
        status, data, headers = self._answer(path.strip("/").split("/"), body)
        if path in self.of.broken and self.command == "GET":
            headers["Content-Length"] = str(len(data))
            data = data[: len(data) // 2]
            self.close_connection = True
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), "Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_HEAD = do_GET = do_POST = _serve  # noqa: N815

    def _answer(self, parts: list[str], body: bytes) -> tuple[int, bytes, dict[str, str]]:
        if parts[0] == "api" and parts[1] in ("models", "datasets"):
            return self._about(parts[1], "/".join(parts[2:4]), parts[4:], body)
        kind = "datasets" if parts[0] == "datasets" else "models"
        rest = parts[1:] if kind == "datasets" else parts
        if len(rest) > 4 and rest[2] == "resolve":
            return self._file(kind, "/".join(rest[:2]), rest[3], "/".join(rest[4:]))
        return _refused("EntryNotFound")

    def _commit(self, kind: str, name: str, revision: str) -> tuple[str, dict[str, bytes]] | str:
        commits = self.of.commits.get((kind, name))
        if commits is None:
            return "RepoNotFound"
        commit = list(commits)[-1] if revision == "main" else revision
        return (commit, commits[commit]) if commit in commits else "RevisionNotFound"

    def _file(self, kind: str, name: str, revision: str, path: str) -> tuple[int, bytes, dict[str, str]]:
        found = self._commit(kind, name, revision)
        if isinstance(found, str):
            return _refused(found)
        commit, files = found
        if path not in files:
            status, data, headers = _refused("EntryNotFound")
            return status, data, {**headers, "X-Repo-Commit": commit}
        data = files[path]
        reported = {"ETag": f'"{sha1(data).hexdigest()}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        requested = self.headers.get("Range", "")
        if requested.startswith("bytes="):
            first, _, last = requested.removeprefix("bytes=").partition("-")
            end = int(last) + 1 if last else len(data)
            reported["Content-Range"] = f"bytes {first}-{end - 1}/{len(data)}"
            return 206, data[int(first) : end], reported
        return 200, data, reported

    def _about(self, kind: str, name: str, rest: list[str], body: bytes) -> tuple[int, bytes, dict[str, str]]:
        ask, revision = (rest[0], rest[1]) if len(rest) > 1 else ("revision", "main")
        found = self._commit(kind, name, revision)
        if isinstance(found, str):
            return _refused(found)
        commit, files = found
        if ask == "tree":
            within = "/".join(rest[2:])
            whole = parse_qs(urlsplit(self.path).query).get("recursive", ["false"])[0].lower() == "true"
            return _json([one for one in _entries(files) if _below(one["path"], within, whole)])
        if ask == "paths-info":
            output = json.loads(body) if body.startswith(b"{") else {"paths": parse_qs(body.decode()).get("paths", [])}
            return _json([one for one in _entries(files) if one["path"] in output["paths"]])
        siblings = [{"rfilename": path, "size": len(data)} for path, data in files.items()]
        facts = {"_id": "0", "id": name, "sha": commit, "private": False, "gated": False, "disabled": False,
                 "downloads": 0, "likes": 0, "tags": [], "siblings": siblings}  # fmt: skip
        return _json(facts)


def _entries(files: dict[str, bytes]) -> list[dict[str, Any]]:
    folders = {path.rpartition("/")[0] for path in files if "/" in path}
    found = [{"type": "directory", "path": path, "oid": "0" * 40, "size": 0} for path in sorted(folders)]
    return found + [
        {"type": "file", "path": path, "oid": sha1(data).hexdigest(), "size": len(data)} for path, data in files.items()
    ]


def _below(path: str, folder: str, whole: bool) -> bool:
    if folder and not path.startswith(folder + "/"):
        return False
    return whole or "/" not in path.removeprefix(folder + "/" if folder else "")


def _json(reported: Any) -> tuple[int, bytes, dict[str, str]]:
    return 200, json.dumps(reported).encode(), {}


def _refused(why: str) -> tuple[int, bytes, dict[str, str]]:
    return 404, json.dumps({"error": why}).encode(), {"X-Error-Code": why, "X-Error-Message": why}
