"""The vLLM server of a run: start it in place of this process, or check whether it is ready.

``python vllm_server.py`` starts the server. ``python vllm_server.py --answers HOST`` exits with 0 if the server on HOST
is ready. The server is the program ``vllm`` (``trl`` with an older trl) next to this interpreter or on the PATH. The
variable XPC_VLLM can name another program, such as ``vllm`` in a separate environment. Standard library only.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from typing import NoReturn

if not __package__:
    sys.path[0], __package__ = os.path.split(os.path.dirname(os.path.abspath(__file__)))
    _kept, sys.pycache_prefix = sys.pycache_prefix, os.devnull  # read no bytecode of this folder (see __init__.py)
    __import__(__package__)
    sys.pycache_prefix = _kept

from .core import bundle as bundles
from .core.errors import RunError
from .core.feature import Bundle
from .enabled import FEATURES

SECONDS = 5.0
"""Timeout in seconds for an answer of the server."""


def main(folder: str, words: Sequence[str]) -> int:
    """Run the program. Returns 0, or 1 after a message. Does not return if the server replaces this process."""
    parser = argparse.ArgumentParser(prog="vllm_server.py", allow_abbrev=False)
    parser.add_argument("--answers", metavar="HOST")
    parser.add_argument("--tensor-parallel", type=int, default=1, help="GPUs that share the weights")
    parser.add_argument("--data-parallel", type=int, default=1, help="copies of the weights")
    options = parser.parse_args(list(words))
    try:
        bundle = bundles.read(folder, FEATURES)
        if options.answers is not None:
            return 0 if answers(bundle, options.answers) else 1
        start(bundle, options.tensor_parallel, options.data_parallel)
    except RunError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1


def port(bundle: Bundle) -> int:
    """The port on which the trainer expects the vLLM server. Raises RunError for a run without such a server."""
    found = bundle.arguments.get("vllm_server_port")
    if not bundle.arguments.get("use_vllm") or not isinstance(found, int):
        raise RunError("this bundle uses no vLLM server")
    return found


def command(bundle: Bundle, tensor: int, data: int) -> list[str]:
    """The command line of the server.

    If the program is vllm, the command is the one that `trl vllm-serve` builds (trl 1.16 `scripts/vllm_serve.py`
    `build_command`); if the program is trl, the command is trl's own (trl 0.18 `scripts/vllm_serve.py`).
    """
    model, where = bundle.model, bundle.model_path
    old = bundle.stack["vllm_program"] == "trl"
    words = [program("trl"), "vllm-serve", "--model", where] if old else [program("vllm"), "serve", where]
    sizes = ("--tensor_parallel_size", "--data_parallel_size") if old else (
        "--tensor-parallel-size", "--data-parallel-size",
    )  # fmt: skip
    words += ["--host", "0.0.0.0", "--port", str(port(bundle)), sizes[0], str(tensor), sizes[1], str(data)]
    if model["id"] is not None and model["revision"] is not None:
        words += ["--revision", model["revision"]]
    if old:
        return words
    if model["trust_remote_code"]:
        words += ["--trust-remote-code"]
    words += ["--enable-scale-out", "--weight-transfer-config", '{"backend": "nccl"}']
    return [*words, "--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1"]


def program(name: str) -> str:
    """The path of the program `name` (`vllm` or `trl`) or, if XPC_VLLM is set, of the program that it names. Raises
    RunError if there is no such program.
    """
    override = os.environ.get("XPC_VLLM")
    next_to = os.path.join(os.path.dirname(sys.executable), name)
    found = shutil.which(override) if override else shutil.which(next_to) or shutil.which(name)
    if found is None:
        raise RunError(
            f"there is no program {override or name} to start the vLLM server with; pip install -r requirements.txt, "
            "or set XPC_VLLM to the path of one"
        )
    return found


def start(bundle: Bundle, tensor: int, data: int) -> NoReturn:
    """Replace this process by the server. Weight updates and cache resets need vLLM's development endpoints."""
    words = command(bundle, tensor, data)
    print("[server] " + " ".join(words), flush=True)
    staged = os.environ.get("XPC_STAGED")
    hub = {"HF_HUB_CACHE": os.path.join(staged, "hub"), "HF_HUB_OFFLINE": "1"} if staged else {}
    os.execve(words[0], words, {**os.environ, **hub, "VLLM_SERVER_DEV_MODE": "1"})


def answers(bundle: Bundle, host: str) -> bool:
    """Ask the server on the host whether it is ready to generate. The request uses no proxy."""
    from http.client import HTTPException
    from urllib.request import ProxyHandler, build_opener

    place = f"[{host}]" if ":" in host else host
    try:
        with build_opener(ProxyHandler({})).open(f"http://{place}:{port(bundle)}/health", timeout=SECONDS) as response:
            return bool(response.status == 200)
    except (OSError, HTTPException, ValueError):  # connection refused, unknown host, timeout, or an invalid answer
        return False


if __name__ == "__main__":
    sys.exit(main(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), sys.argv[1:]))
