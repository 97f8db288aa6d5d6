"""A local server that replaces the Hugging Face hub and a package index for `xpc lock`.

Usage: `with Served() as served`; the command gets the variables `served.environment`. `repositories` maps ("models",
"org/name") to a `Repository`; `packages` maps (name, version) to the package's requirements. Its wheels contain only
metadata.
"""

from __future__ import annotations

import io
import json
import zipfile
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote

from attrs import define, field

from xpc.compiler.preview.rehearsal.local_server import LocalServer


@define
class Repository:
    """A repository of the hub: its commits by branch, its files, and, for a dataset, its card. If `token` is set, the
    server refuses a request without this token.
    """

    branches: dict[str, str]
    files: dict[str, bytes] = field(factory=dict)
    card: dict[str, Any] = field(factory=dict)
    token: str = ""


class _Handler(BaseHTTPRequestHandler):
    """Answers each request with the result of `Served.answer`."""

    of: Served

    def do_GET(self) -> None:
        path = unquote(self.path.partition("?")[0])
        self.of.requested.append(path)
        status, body, kind = self.of.answer(path, self.headers.get("Authorization", ""))
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@define
class Served(LocalServer):
    """The server. The hub answers at the paths `/api/...`, the package index at `/simple/...` and `/wheels/...`."""

    repositories: dict[tuple[str, str], Repository] = field(factory=dict)
    packages: dict[tuple[str, str], tuple[str, ...]] = field(factory=dict)

    @property
    def handler(self) -> type[_Handler]:
        return _Handler

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that make the hub's client and pip use this server."""
        return {"HF_ENDPOINT": self.url, "HF_HUB_OFFLINE": "0", "HF_TOKEN": "", "PIP_INDEX_URL": f"{self.url}/simple",
                "PIP_EXTRA_INDEX_URL": "", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": "/dev/null"}  # fmt: skip

    def answer(self, path: str, output: str) -> tuple[int, bytes, str]:
        parts = path.strip("/").split("/")
        if parts[0] == "simple":
            return self._index(parts)
        if parts[0] == "wheels":
            return 200, self._wheel(*parts[1].split("-")[:2]), "application/zip"
        if parts[0] == "api":
            found, wanted = self.repositories.get((parts[1], "/".join(parts[2:4]))), parts[5]
            if found is not None and found.token and output != f"Bearer {found.token}":
                return 401, b"{}", "application/json"
            sha = None if found is None else found.branches.get(wanted)
            if found is not None and wanted in found.branches.values():
                sha = wanted
            if sha is None:
                return 404, b"{}", "application/json"
            return 200, json.dumps({"id": parts[2], "sha": sha, "cardData": found.card}).encode(), "application/json"
        found = self.repositories.get(("models", "/".join(parts[:2])))
        data = None if found is None else found.files.get("/".join(parts[4:]))
        return (404, b"", "text/plain") if data is None else (200, data, "text/plain")

    def _index(self, parts: list[str]) -> tuple[int, bytes, str]:
        links = [
            f'<a href="/wheels/{name.replace("-", "_")}-{version}-py3-none-any.whl">{name}</a>'
            for name, version in self.packages
            if parts[1:] == [name]
        ]
        return (200 if links else 404), "".join(links).encode(), "text/html"

    def _wheel(self, spelled: str, version: str) -> bytes:
        name = spelled.replace("_", "-")
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {one}" for one in self.packages[name, version]]
        out, folder = io.BytesIO(), f"{spelled}-{version}.dist-info"
        with zipfile.ZipFile(out, "w") as file:
            file.writestr(f"{folder}/METADATA", "\n".join(lines) + "\n")
            file.writestr(f"{folder}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            file.writestr(f"{folder}/RECORD", "")
        return out.getvalue()
