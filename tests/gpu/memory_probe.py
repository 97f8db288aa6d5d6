"""One memory measurement: a Qwen2 of the given shape takes two steps. For each phase of a step, the program records the
bytes at the phase's end and at its peak.

On a GPU the numbers come from torch's allocator (`max_memory_allocated`). On a CPU, torch does not count allocated
bytes. There the numbers are the bytes of weights, gradients, optimizer states and tensors saved by autograd, so that a
rehearsal can run the same program.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from typing import Any


def main(requested: dict[str, Any]) -> dict[str, Any]:
    """Run a training of two steps, and return the bytes of each phase."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    device, half = requested["device"], torch.bfloat16
    torch.manual_seed(0)
    heads = max(4, requested["hidden"] // 128)
    config = Qwen2Config(
        vocab_size=requested["vocab"], hidden_size=requested["hidden"], intermediate_size=4 * requested["hidden"],
        num_hidden_layers=requested["layers"], num_attention_heads=heads, num_key_value_heads=max(2, heads // 4),
        max_position_embeddings=requested["tokens"], tie_word_embeddings=requested["vocab"] > 100_000,
    )  # fmt: skip
    if requested["head"] == "liger":
        from liger_kernel.transformers import apply_liger_kernel_to_qwen2

        apply_liger_kernel_to_qwen2(rope=False, rms_norm=False, swiglu=False, fused_linear_cross_entropy=True)
    meter = Meter(torch, device)
    with meter.phase("load"):
        model = Qwen2ForCausalLM._from_config(config, attn_implementation="sdpa")
        model = model.to(device=device, dtype=half if requested["precision"] == "bf16" else torch.float32)
        model.config.use_cache = False
        if requested["checkpointing"]:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    rows = torch.randint(0, requested["vocab"], (1, requested["tokens"]), device=device)
    for _ in range(2):  # two steps, because only in the second one the optimizer's states exist from the start
        mixed = requested["precision"] == "mixed"
        with meter.phase("forward"), meter.saved(), torch.autocast(device, dtype=half, enabled=mixed):
            loss = model(input_ids=rows, labels=rows).loss
        with meter.phase("backward"):
            loss.backward()
        with meter.phase("step"):
            optimizer.step()
            kept = meter.held(model, optimizer)
            optimizer.zero_grad(set_to_none=True)
    return {
        "parameters": sum(one.numel() for one in model.parameters()), "loss": float(loss.detach()),
        "phases": meter.phases, "held": kept, "counted": "allocator" if device == "cuda" else "tensors",
    }  # fmt: skip


class Meter:
    """Records the bytes at the end and at the peak of each phase of a step."""

    def __init__(self, torch: Any, device: str) -> None:
        self.torch = torch
        self.cuda = device == "cuda"
        self.phases: dict[str, dict[str, int]] = {}
        self.bytes: dict[int, int] = {}

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure the code inside the `with` block as one phase. Each step measures every phase again; the last step
        counts.
        """
        if self.cuda:
            self.torch.cuda.synchronize()
            self.torch.cuda.reset_peak_memory_stats()
        yield
        if self.cuda:
            self.torch.cuda.synchronize()
            peak, left = self.torch.cuda.max_memory_allocated(), self.torch.cuda.memory_allocated()
            self.phases[name] = {"peak": peak, "left": left}

    @contextlib.contextmanager
    def saved(self) -> Iterator[None]:
        """On a CPU, count the bytes of the tensors that autograd keeps for the backward pass. Tensors count if they are
        kept within the `with` block.
        """
        if self.cuda:
            yield
            return
        self.bytes = {}

        def note(one: Any) -> Any:
            storage = one.untyped_storage()
            self.bytes[storage.data_ptr()] = storage.nbytes()
            return one

        with self.torch.autograd.graph.saved_tensors_hooks(note, lambda one: one):
            yield
        self.phases["forward"] = {"saved": sum(self.bytes.values())}

    def held(self, model: Any, optimizer: Any) -> dict[str, int]:
        """The bytes that weights, gradients and optimizer states occupy now."""
        states = [one for state in optimizer.state.values() for one in state.values() if hasattr(one, "nbytes")]
        return {
            "weights": sum(one.nbytes for one in model.parameters()),
            "gradients": sum(one.grad.nbytes for one in model.parameters() if one.grad is not None),
            "optimizer": sum(one.nbytes for one in states),
        }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
