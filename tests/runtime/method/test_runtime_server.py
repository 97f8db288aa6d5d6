"""The runtime starts a run's vLLM server with the right command, and waits until the server answers."""

from __future__ import annotations

import http.server
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from ports import free_port
from runtime_bundles import bundle_of, of_method, plan, source

from xpc.runtime import vllm_server
from xpc.runtime.core.errors import RunError
from xpc.runtime.core.feature import Bundle

pytestmark = pytest.mark.slow


def bundle(program: str = "vllm", port: int | None = 8001, **model: object) -> Bundle:
    facts = plan("/models/tiny", [source("rows.jsonl")])
    facts["stack"]["vllm_program"] = program
    facts = of_method(facts, "trl.GRPOConfig")
    facts["arguments"] |= {"use_vllm": port is not None, "vllm_server_port": port}
    facts["model"] |= model
    return bundle_of("/b", facts)


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XPC_VLLM", "/bin/true")


def test_each_program_gets_its_own_command() -> None:
    named = {"id": "org/model", "path": None, "revision": "abc"}
    new = vllm_server.command(bundle(**named, trust_remote_code=True), 2, 4)
    assert new[:3] == ["/bin/true", "serve", "org/model"]
    assert new[3:13] == [
        "--host", "0.0.0.0", "--port", "8001", "--tensor-parallel-size", "2", "--data-parallel-size", "4",
        "--revision", "abc",
    ]  # fmt: skip
    assert "--trust-remote-code" in new
    assert new[new.index("--weight-transfer-config") + 1] == '{"backend": "nccl"}'
    old = vllm_server.command(bundle("trl", **named), 1, 8)
    assert old == [
        "/bin/true", "vllm-serve", "--model", "org/model", "--host", "0.0.0.0", "--port", "8001",
        "--tensor_parallel_size", "1", "--data_parallel_size", "8", "--revision", "abc",
    ]  # fmt: skip


def test_trl_itself_starts_it_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each option in the command for vLLM's server is also passed by TRL's own script. That script passes a few more
    options, which have vLLM's default values.
    """
    scripts = pytest.importorskip("trl.scripts.vllm_serve", reason="the stack is not installed")
    monkeypatch.setattr(scripts, "is_vllm_available", lambda *_, **__: True)
    arguments = scripts.ScriptArguments(model="org/model", tensor_parallel_size=2, data_parallel_size=4, port=8001)
    ours, theirs = (
        vllm_server.command(bundle(id="org/model", path=None), 2, 4)[1:],
        scripts.build_command(arguments)[3:],
    )
    assert [word for word in ours if word not in theirs] == []
    left = [word for word in theirs if word.startswith("--") and word not in ours]
    assert set(left) <= {
        "--gpu-memory-utilization", "--dtype", "--kv-cache-dtype", "--model-impl", "--uvicorn-log-level",
    }  # fmt: skip


def test_a_program_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XPC_VLLM", f"{tmp_path}/vllm")
    with pytest.raises(RunError, match=f"no program {tmp_path}/vllm to start the vLLM server"):
        vllm_server.command(bundle(id="org/model", path=None), 1, 1)
    monkeypatch.delenv("XPC_VLLM")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", os.path.join(tmp_path, "python"))
    with pytest.raises(RunError, match="no program vllm"):
        vllm_server.program("vllm")
    with open(os.path.join(tmp_path, "vllm"), "w", encoding="utf-8") as handle:
        handle.write("#!/bin/sh\n")
    os.chmod(handle.name, 0o755)
    assert vllm_server.program("vllm") == handle.name


def test_a_run_without_a_server_has_no_port() -> None:
    with pytest.raises(RunError, match="uses no vLLM server"):
        vllm_server.port(bundle(port=None))


@pytest.fixture
def health() -> Iterator[tuple[int, list[int]]]:
    """Start a server that answers `/health` with a given HTTP status. Yield the server's port, and a list with this
    status, in which a test can replace it.
    """
    status = [200]

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status[0] if self.path == "/health" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    made = http.server.HTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made.server_port, status
    made.shutdown()


def test_it_answers_when_it_is_ready(health: tuple[int, list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # requests between nodes use no proxy
    port, status = health
    assert vllm_server.answers(bundle(port=port), "127.0.0.1")
    status[0] = 503
    assert not vllm_server.answers(bundle(port=port), "127.0.0.1")


def test_nobody_answers() -> None:
    port = free_port()
    assert not vllm_server.answers(bundle(port=port), "127.0.0.1")
    assert not vllm_server.answers(bundle(port=port), "no such host")
