"""Two processes share a sequence by DeepSpeed's sequence parallelism (Ulysses). Compare their logits with the logits of
a single process.

test_stack_families.py runs this program. It reads a JSON list of `model_type`s from stdin, and prints a JSON object:
for each family, the largest error of a logit of its tiny model, or the exception as text ("ValueError: ...").
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from typing import Any

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["DS_ACCELERATOR"] = "cpu"
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [HERE, os.path.join(os.path.dirname(HERE), "proof")]
LENGTH = 16


def error(model_type: str, rank: int) -> float | str:
    """The largest difference between a logit in this process's half of a sequence and the same logit without
    parallelism.

    As in a run, the first process has the first half of the sequence. If the model raises an exception, the result is
    the exception as text.
    """
    import tiny_models
    import torch
    from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPAttentionHF
    from transformers import AutoModelForCausalLM
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    torch.manual_seed(0)
    try:
        model = AutoModelForCausalLM.from_config(tiny_models.config(model_type), attn_implementation="sdpa")
    except (ValueError, ImportError) as found:
        return f"{type(found).__name__}: {found}"
    model = model.eval().float()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.1)
    tokens = torch.randint(3, 120, (1, LENGTH), generator=torch.Generator().manual_seed(0))
    locations = torch.arange(LENGTH)[None]
    mine = slice(rank * LENGTH // 2, (rank + 1) * LENGTH // 2)
    plain = ALL_ATTENTION_FUNCTIONS["sdpa"]
    try:
        with torch.no_grad():
            whole = model(input_ids=tokens, position_ids=locations, use_cache=False).logits
            UlyssesSPAttentionHF.register_with_transformers(model, "sdpa", 2, 1)
            half = model(input_ids=tokens[:, mine], position_ids=locations[:, mine], use_cache=False).logits
    except Exception as found:  # code of a family that does not support Ulysses may raise any exception
        return f"{type(found).__name__}: {found}"
    finally:
        ALL_ATTENTION_FUNCTIONS["sdpa"] = plain
    return float((whole[:, mine] - half).abs().max())


def process(rank: int, names: list[str], port: int, reported: Any) -> None:
    """The program of each of the two processes. For each family, it puts the pair (model type, error) into the queue
    ``reported``.
    """
    warnings.simplefilter("ignore")
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1")
    os.environ["MASTER_PORT"] = str(port)
    import deepspeed
    import torch
    from deepspeed.runtime.sequence_parallel import parallel_state_sp
    from transformers import logging

    logging.set_verbosity_error()
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
    parallel_state_sp.initialize_sequence_parallel(sequence_parallel_size=2)
    # Each model would initialize the process group again, but a process can do that only once.
    parallel_state_sp.initialize_sequence_parallel = lambda **_: None
    for name in names:
        reported.put((name, error(name, rank)))


def main() -> None:
    """Start both processes. For each family, print the larger error of the two processes, or, if a process raised an
    exception, this exception.
    """
    import torch.multiprocessing as processes
    from ports import free_port

    names = json.load(sys.stdin)
    reported = processes.get_context("spawn").Queue()
    running = processes.spawn(process, (names, free_port(), reported), nprocs=2, join=False)
    found: dict[str, list[float | str]] = {name: [] for name in names}
    for _ in range(2 * len(names)):
        name, one = reported.get(timeout=300)
        found[name].append(one)
    while not running.join():
        pass
    worst = {
        name: next((one for one in both if isinstance(one, str)), None) or max(both) for name, both in found.items()
    }
    print(json.dumps(worst))


if __name__ == "__main__":
    main()
