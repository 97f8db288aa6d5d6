"""Ask the hub for three things: the commit of a model, dataset or kernel; a model's configuration; a dataset's columns
and numbers of rows.

As in the Hugging Face libraries, HF_ENDPOINT selects another hub and HF_TOKEN gives access to gated repositories.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from hashlib import sha256
from http.client import HTTPException, IncompleteRead
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from xpc.compiler.files.pins import DATASET, KERNEL, MODEL, Pin
from xpc.compiler.files.secrets import pinned

ENDPOINT = "https://huggingface.co"
SECONDS = 30.0
"""A connection is closed if it sends nothing for this many seconds."""
DEADLINE = 120.0
"""The time limit in seconds for a complete answer. SECONDS alone does not limit this time: a server that sends one byte
each second never exceeds SECONDS.
"""
LARGEST = 16 * 2**20
"""Maximum size in bytes of an answer."""
NAMES = {MODEL: "models", DATASET: "datasets", KERNEL: "kernels"}


class HubError(Exception):
    """Raised if the answer of the hub cannot be used. The message is one sentence."""


class _Redirects(HTTPRedirectHandler):
    """Follows redirects. The token is sent only to the original host."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):  # type: ignore[no-untyped-def]
        """Make the redirected request. Raises HTTPError if the redirect is not allowed."""
        if urlsplit(newurl).scheme not in ("http", "https"):
            raise HTTPError(newurl, code, "a redirect to another protocol", headers, fp)
        made = super().redirect_request(req, fp, code, msg, headers, newurl)
        if made is not None and urlsplit(newurl).netloc != urlsplit(req.full_url).netloc:
            made.remove_header("Authorization")
        return made


class Hub:
    """The hub that the environment variables select. The methods raise HubError for a repository that does not exist,
    or that the token may not read.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        if environment.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
            raise HubError("HF_HUB_OFFLINE is set, but `xpc lock --update` needs the hub")
        self.endpoint = (environment.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")
        if urlsplit(self.endpoint).scheme not in ("http", "https"):
            raise HubError("HF_ENDPOINT is not an http or https address")
        token = environment.get("HF_TOKEN")
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.opener = build_opener(_Redirects)

    def pin(self, kind: str, id: str, requested: str, part: str) -> Pin:
        """Pin a repository at the branch, tag or commit `requested`; "" means the default branch. `part` is the
        configuration of a dataset. Raises HubError.
        """
        # a kernel repository without a revision is looked up as a model repository, which the hub has under the same
        # name
        repository = MODEL if kind == KERNEL and not requested else kind
        path = f"/api/{NAMES[repository]}/{quote(id)}/revision/{quote(requested or 'main', safe='')}"
        answer = self._json(path, f"{id}{f'@{requested}' if requested else ''}")
        revision = answer.get("sha")
        if not isinstance(revision, str) or not pinned(revision):
            raise HubError(f"the hub's answer about {id} has no commit")
        if pinned(requested) and revision != requested:
            raise HubError(f"the hub's answer about {id} is about another commit, {revision[:12]}")
        if kind == MODEL:
            return self._model(id, requested, revision)
        if kind == KERNEL:
            return Pin(kind, id, requested, revision)
        card = answer.get("cardData")
        columns, rows = described(card if isinstance(card, dict) else {}, part)
        return Pin(kind, id, requested, revision, part, columns=columns, rows=rows)

    def _model(self, id: str, requested: str, revision: str) -> Pin:
        config = self._file(id, revision, "config.json")
        tokenizer = self._file(id, revision, "tokenizer_config.json")
        template = self._file(id, revision, "chat_template.jinja")
        try:
            settings, facts = json.loads(tokenizer or b"{}"), json.loads(config or b"{}")
            config_text = json.dumps(facts, sort_keys=True) if facts else ""
        except (ValueError, RecursionError) as error:
            raise HubError(f"a configuration of {id} is not JSON") from error
        if not isinstance(settings, dict) or not isinstance(facts, dict):
            raise HubError(f"a configuration of {id} is not a JSON object")
        stated = template.decode("utf-8", "replace") if template is not None else settings.get("chat_template")
        text = stated if isinstance(stated, str) else "" if stated is None else json.dumps(stated, sort_keys=True)
        template_digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        return Pin(
            MODEL, id, requested, revision, config=config_text,
            chat=None if tokenizer is None and template is None else stated is not None,
            template=f"sha256:{template_digest}" if text else "",
        )  # fmt: skip

    def _file(self, id: str, revision: str, name: str) -> bytes | None:
        try:
            return self._get(f"/{quote(id)}/resolve/{revision}/{name}", id)
        except _Missing:
            return None

    def _json(self, path: str, what: str) -> dict[str, Any]:
        try:
            found = json.loads(self._get(path, what))
        except _Missing as error:
            raise HubError(f"the hub does not have {what}, or needs a token for it (HF_TOKEN)") from error
        except (ValueError, RecursionError) as error:
            raise HubError(f"the hub's answer about {what} is not JSON") from error
        if not isinstance(found, dict):
            raise HubError(f"the hub's answer about {what} is not a JSON object")
        return found

    def _get(self, path: str, what: str) -> bytes:
        found: list[bytes | BaseException] = []
        thread = Thread(target=lambda: found.append(self._answer(path)), daemon=True)
        thread.start()
        # a socket's timeout starts again with each byte that arrives, so it does not limit the time for a complete
        # answer
        thread.join(DEADLINE)
        try:
            if not found:
                raise OSError(f"no complete answer within {DEADLINE:.0f} seconds")
            if isinstance(found[0], BaseException):
                raise found[0]
            data = found[0]
        except HTTPError as error:
            error.close()
            if error.code == 404:
                raise _Missing from error
            if error.code in (401, 403):
                raise HubError(f"{what} is gated or private: HF_TOKEN must belong to an account with access") from error
            raise HubError(f"the hub answered {error.code} for {what}") from error
        except (OSError, ValueError, HTTPException) as error:
            raise HubError(
                f"the hub cannot be reached for {what} ({getattr(error, 'reason', None) or error})"
            ) from error
        if len(data) > LARGEST:
            raise HubError(f"the hub's answer about {what} is larger than {LARGEST // 2**20} MiB")
        return data

    def _answer(self, path: str) -> bytes | BaseException:
        """Return the body of an answer, at most LARGEST + 1 bytes of it. The method runs in a thread, so exceptions are
        returned and not raised.
        """
        try:
            with self.opener.open(Request(self.endpoint + path, headers=self.headers), timeout=SECONDS) as answer:
                data: bytes = answer.read(LARGEST + 1)
                # report an answer that was cut short; `read` with a size does not notice it
                if len(data) <= LARGEST and answer.length:
                    raise IncompleteRead(data, answer.length)
                return data
        except BaseException as error:
            return error


class _Missing(Exception):
    """Raised if a file or repository does not exist."""


def described(card: Mapping[str, Any], part: str) -> tuple[tuple[str, ...], dict[str, int]]:
    """Read the part of a dataset's card that describes a configuration (`dataset_info`). Returns a pair: the columns,
    and the number of rows in each split.
    """
    info = card.get("dataset_info")
    entries = [one for one in (info if isinstance(info, list) else [info]) if isinstance(one, dict)]
    named = [one for one in entries if one.get("config_name", "default") == (part or "default")]
    entry = named[0] if named else entries[0] if len(entries) == 1 and not part else {}
    features, splits = entry.get("features"), entry.get("splits")
    columns = tuple(dict.fromkeys(one["name"] for one in _dicts(features) if _is_name(one.get("name"))))
    counted = [(one.get("name"), one.get("num_examples")) for one in _dicts(splits)]
    return columns, {str(name): n for name, n in counted if _is_name(name) and type(n) is int and 0 <= n < 2**63}


def _is_name(value: object) -> bool:
    """Whether a value from the hub may be written into a lock as a name. It may if it is printable text."""
    return isinstance(value, str) and value.isprintable()


def _dicts(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
