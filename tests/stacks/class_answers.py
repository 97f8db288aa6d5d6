"""test_stack_classes.py asks this program about the libraries of a target. It runs in the target's interpreter, and
imports the libraries only once for all questions.

The program reads JSON: `generate` (the arguments of generate.py) and `classes` (for each method a configuration class
and the stated arguments). The last line that it prints is JSON: `built` (the configuration objects), `packed` (how much
the logits of a document change under sdpa if it shares a row with another document), `liger` (the version, and the
models that it patches). Each answer is computed in a fork, so the state of a library cannot affect the next answer.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import warnings
from collections.abc import Callable
from importlib import import_module, metadata
from typing import Any


def apart(question: Callable[..., Any], *given: Any) -> Any:
    """Compute an answer in a fork of this process."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            with os.fdopen(write, "w") as handle:
                json.dump(question(*given), handle)
            os._exit(0)
        finally:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    os.close(write)
    with os.fdopen(read) as handle:
        text = handle.read()
    if os.waitpid(pid, 0)[1]:
        raise SystemExit(f"{question.__name__}{given} has no answer")
    return json.loads(text)


def plain(value: Any) -> Any:
    """A value as JSON: enumerations by their value, configurations as mappings."""
    value = getattr(value, "value", value)
    return value.to_dict() if hasattr(value, "to_dict") else value


def built(path: str, stated: dict[str, Any]) -> dict[str, Any]:
    """Build the class with the arguments. Return three things: the warnings, the values that the class has changed, and
    the values of arguments that were not stated.
    """
    module, _, name = path.rpartition(".")
    make = getattr(import_module(module), name)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = make(**stated)
    kinds = (FutureWarning, DeprecationWarning)
    # trl 0.24 warns of some arguments that will be removed, but with a plain warning, not a DeprecationWarning
    return {
        "warnings": [
            str(one.message) for one in caught if issubclass(one.category, kinds) or "is deprecated" in str(one.message)
        ],
        "changed": {k: [v, plain(getattr(made, k))] for k, v in stated.items() if plain(getattr(made, k)) != v},
        "unstated": sorted(f for f, d in make.__dataclass_fields__.items() if d.init and f not in stated),
    }


def packed() -> float:
    """Pack two documents into one row, in which only their position ids separate them. Return the largest difference
    between a logit of this row and the same logit of a row with only one of the documents.
    """
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
                         num_key_value_heads=2, vocab_size=64)  # fmt: skip
    model = Qwen2ForCausalLM._from_config(config, attn_implementation="sdpa").eval()
    one, two = torch.randint(0, 64, (1, 7)), torch.randint(0, 64, (1, 9))
    positions = torch.cat([torch.arange(7), torch.arange(9)])[None]
    with torch.no_grad():
        together = model(input_ids=torch.cat([one, two], 1), position_ids=positions, use_cache=False).logits
        alone = torch.cat([model(input_ids=one).logits, model(input_ids=two).logits], 1)
    return float((together - alone).abs().max())


def liger() -> list[Any]:
    """The installed version of Liger ("" if Liger is not installed), and the model families that it patches."""
    try:
        version = metadata.version("liger-kernel")
    except metadata.PackageNotFoundError:
        return ["", []]
    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN

    return [version, sorted(MODEL_TYPE_TO_APPLY_LIGER_FN)]


def main() -> None:
    """Compute and print all answers. generate.py runs first, so that it sees a fresh process."""
    given = json.load(sys.stdin)
    sys.argv = given["generate"]
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
    answers = {
        "built": {method: apart(built, *one) for method, one in given["classes"].items()},
        "packed": apart(packed), "liger": apart(liger),
    }  # fmt: skip
    print("\n" + json.dumps(answers))


if __name__ == "__main__":
    main()
