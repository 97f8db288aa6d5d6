"""Replace FlashAttention by plain torch, to see on a CPU with which arguments transformers would call the kernels.

This module runs in the interpreter of a stack. `install` changes transformers 5.23, 4.57 or 4.52 in this process, so
that models with `flash_attention_2` load on a CPU (on 5.23 and 4.57, also with `flash_attention_3`). `CALLS` has a word
for each call of a kernel: "varlen" if the kernel gets the bounds of packed documents, "plain" if it treats each row as
one document.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch

QUESTION = ("flash_attention_2", "flash_attention_3")
CALLS: list[str] = []


def _attend(q: Any, k: Any, v: Any, scale: float | None, causal: bool, window: Any, softcap: float) -> Any:
    """Attention within one document; ``q``, ``k`` and ``v`` have the shape (tokens, heads, head size)."""
    repeated = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeated, 1), v.repeat_interleave(repeated, 1)
    scores = torch.einsum("qhd,khd->hqk", q.float(), k.float()) * (scale or q.shape[-1] ** -0.5)
    if softcap:
        scores = torch.tanh(scores / softcap) * softcap
    location = torch.arange(q.shape[0])
    hidden = (
        (location[None] > location[:, None]) if causal else torch.zeros(len(location), len(location), dtype=torch.bool)
    )
    if window is not None and window[0] >= 0:
        hidden = hidden | (location[:, None] - location[None] > window[0])
    scores = scores.masked_fill(hidden[None], float("-inf"))
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v.float()).to(q.dtype)


def flash_attn_func(
    q: Any, k: Any, v: Any, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: Any = (-1, -1), softcap: float = 0.0, deterministic: bool = False,
) -> Any:  # fmt: skip
    """Replaces the kernel for unpacked rows: each row of the batch is one document."""
    CALLS.append("plain")
    rows = zip(q, k, v, strict=True)
    return torch.stack([_attend(*row, softmax_scale, causal, window_size, softcap) for row in rows])


def flash_attn_varlen_func(
    q: Any, k: Any, v: Any, cu_seqlens_q: Any = None, cu_seqlens_k: Any = None, max_seqlen_q: Any = None,
    max_seqlen_k: Any = None, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: Any = (-1, -1), softcap: float = 0.0, deterministic: bool = False,
) -> Any:  # fmt: skip
    """Replaces the kernel for packed rows: ``cu_seqlens_q`` has the bounds of the documents in one row."""
    CALLS.append("varlen")
    bounds = cu_seqlens_q.tolist()
    parts = [slice(first, last) for first, last in pairwise(bounds)]
    return torch.cat([_attend(q[one], k[one], v[one], softmax_scale, causal, window_size, softcap) for one in parts])


def _index_first_axis(rows: Any, locations: Any) -> Any:
    """Replaces ``flash_attn.bert_padding.index_first_axis``: returns the tokens at these indices, without padding."""
    return rows[locations]


def _pad_input(rows: Any, locations: Any, batch: int, length: int) -> Any:
    """Replaces ``flash_attn.bert_padding.pad_input``: returns a batch of zeros, with each token at its index."""
    out = torch.zeros(batch * length, *rows.shape[1:], dtype=rows.dtype)
    return out.index_copy(0, locations, rows).reshape(batch, length, *rows.shape[1:])


def install() -> None:
    """Make transformers in this process use the functions above as FlashAttention, also for float32 tensors."""
    from transformers import modeling_flash_attention_utils as kernels
    from transformers import modeling_utils, utils
    from transformers.utils import import_utils

    def yes(*_: Any, **__: Any) -> bool:
        return True

    for module in (utils, import_utils, modeling_utils, kernels):
        for name in (
            "is_flash_attn_2_available",
            "is_flash_attn_3_available",
            "is_flash_attn_greater_or_equal",
            "is_flash_attn_greater_or_equal_2_10",
        ):
            if hasattr(module, name):
                setattr(module, name, yes)
    if hasattr(kernels, "lazy_import_flash_attention"):
        own: Any = (flash_attn_func, flash_attn_varlen_func, kernels._pad_input, kernels._unpad_input)
        if hasattr(kernels, "FLASH_ATTENTION_COMPATIBILITY_MATRIX"):  # transformers 5
            from transformers.integrations import flash_attention

            for version in (2, 3):
                kernels.FLASH_ATTENTION_COMPATIBILITY_MATRIX[version]["general_availability_check"] = yes
            own = (*own[:2], None, *own[2:])  # the third one reads a cache of keys and values
            modeling_utils.PreTrainedModel._flash_attn_import_error = lambda *_, **__: None
            modeling_utils.PreTrainedModel._flash_attn_can_dispatch = _declared
            flash_attention.get_target_dtype = lambda *_, **__: torch.float32
        else:
            modeling_utils.PreTrainedModel._flash_attn_2_can_dispatch = _declared
            modeling_utils.PreTrainedModel._flash_attn_3_can_dispatch = _declared
            _wanted_in_fp32()
        others = kernels._lazy_imports
        kernels._lazy_imports = lambda name, *more, **named: (
            own if name in (*QUESTION, None) else others(name, *more, **named)
        )
    else:
        names = {"flash_attn_func": flash_attn_func, "flash_attn_varlen_func": flash_attn_varlen_func}
        names |= {"flash_241": True, "deterministic_g": False, "_flash_supports_window_size": True}
        names |= {"pad_input": _pad_input, "unpad_input": None, "index_first_axis": _index_first_axis}
        for name, value in names.items():
            setattr(kernels, name, value)
        enable = modeling_utils.PreTrainedModel._check_and_enable_flash_attn_2.__func__
        modeling_utils.PreTrainedModel._check_and_enable_flash_attn_2 = classmethod(
            lambda cls, config, *given, **named: enable(cls, config, *given, **{**named, "check_device_map": False})
        )
        _wanted_in_fp32()


def _wanted_in_fp32() -> None:
    """Make transformers 4 leave float32 inputs of FlashAttention in float32, instead of converting them to half
    precision.

    transformers calls a function of torch, without naming a device, to know whether autocast is on; if so, it converts
    the inputs to autocast's dtype. After this change, such a call returns true, and the dtype is float32. torch's own
    code names a device in such calls, and gets the usual result. Some families of 4.57 call for the dtype of a named
    device: the result is float32, unless autocast is enabled for this device.
    """
    requested, kind = torch.is_autocast_enabled, torch.get_autocast_dtype
    torch.is_autocast_enabled = lambda *device: requested(*device) if device else True
    torch.get_autocast_gpu_dtype = lambda: torch.float32
    torch.get_autocast_dtype = lambda device: kind(device) if requested(device) else torch.float32


def _declared(self: Any, *_: Any, **__: Any) -> bool:
    if not self._supports_flash_attn:
        raise ValueError(f"{type(self).__name__} does not support flash attention")
    return True
