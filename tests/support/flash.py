"""FlashAttention's arithmetic in torch, put where transformers looks for the package: what a kernel would be told.

Runs in the interpreter of a stack. `install` patches transformers 5.23, 4.57 or 4.52 in this process; afterwards
models load with `flash_attention_2` on a CPU (on 5.23 and 4.57 also with `flash_attention_3`), and `CALLS` says which
of the kernel's two functions they call: `varlen`, which gets the bounds of documents, or `plain`, which takes the whole
row for one.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch

ASKED = ("flash_attention_2", "flash_attention_3")
CALLS: list[str] = []


def _attend(q: Any, k: Any, v: Any, scale: float | None, causal: bool, window: Any, softcap: float) -> Any:
    """Attention of one document: tensors of (tokens, heads, size)."""
    repeated = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeated, 1), v.repeat_interleave(repeated, 1)
    scores = torch.einsum("qhd,khd->hqk", q.float(), k.float()) * (scale or q.shape[-1] ** -0.5)
    if softcap:
        scores = torch.tanh(scores / softcap) * softcap
    place = torch.arange(q.shape[0])
    hidden = (place[None] > place[:, None]) if causal else torch.zeros(len(place), len(place), dtype=torch.bool)
    if window is not None and window[0] >= 0:
        hidden = hidden | (place[:, None] - place[None] > window[0])
    scores = scores.masked_fill(hidden[None], float("-inf"))
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v.float()).to(q.dtype)


def flash_attn_func(
    q: Any, k: Any, v: Any, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: Any = (-1, -1), softcap: float = 0.0, deterministic: bool = False,
) -> Any:  # fmt: skip
    """A batch of rows, each of them one document."""
    CALLS.append("plain")
    rows = zip(q, k, v, strict=True)
    return torch.stack([_attend(*row, softmax_scale, causal, window_size, softcap) for row in rows])


def flash_attn_varlen_func(
    q: Any, k: Any, v: Any, cu_seqlens_q: Any = None, cu_seqlens_k: Any = None, max_seqlen_q: Any = None,
    max_seqlen_k: Any = None, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: Any = (-1, -1), softcap: float = 0.0, deterministic: bool = False,
) -> Any:  # fmt: skip
    """One row of documents, with the places where they begin and end."""
    CALLS.append("varlen")
    bounds = cu_seqlens_q.tolist()
    parts = [slice(first, last) for first, last in pairwise(bounds)]
    return torch.cat([_attend(q[one], k[one], v[one], softmax_scale, causal, window_size, softcap) for one in parts])


def _index_first_axis(rows: Any, places: Any) -> Any:
    """What flash_attn.bert_padding has: the rows at these places, without the padding."""
    return rows[places]


def _pad_input(rows: Any, places: Any, batch: int, length: int) -> Any:
    """The rows at their places among zeros, as a batch."""
    out = torch.zeros(batch * length, *rows.shape[1:], dtype=rows.dtype)
    return out.index_copy(0, places, rows).reshape(batch, length, *rows.shape[1:])


def install() -> None:
    """Makes this process's transformers believe in the package; its checks of dtypes are told that fp32 is wanted."""
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
        own: Any = (flash_attn_func, flash_attn_varlen_func, None, None)
        if hasattr(kernels, "FLASH_ATTENTION_COMPATIBILITY_MATRIX"):  # transformers 5
            from transformers.integrations import flash_attention

            for version in (2, 3):
                kernels.FLASH_ATTENTION_COMPATIBILITY_MATRIX[version]["general_availability_check"] = yes
            own = (*own, None)
            modeling_utils.PreTrainedModel._flash_attn_import_error = lambda *_, **__: None
            modeling_utils.PreTrainedModel._flash_attn_can_dispatch = _declared
            flash_attention.get_target_dtype = lambda *_, **__: torch.float32
        else:
            modeling_utils.PreTrainedModel._flash_attn_2_can_dispatch = _declared
            modeling_utils.PreTrainedModel._flash_attn_3_can_dispatch = _declared
            _wanted_in_fp32()
        others = kernels._lazy_imports
        kernels._lazy_imports = lambda name, *more, **named: (
            own if name in (*ASKED, None) else others(name, *more, **named)
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
    """transformers 4 takes autocast's type, and asks without a device whether it is on; torch's own autocast names one.

    Some families of 4.57 ask for the type of the device, where nothing is cast unless autocast is on there.
    """
    asked, kind = torch.is_autocast_enabled, torch.get_autocast_dtype
    torch.is_autocast_enabled = lambda *device: asked(*device) if device else True
    torch.get_autocast_gpu_dtype = lambda: torch.float32
    torch.get_autocast_dtype = lambda device: kind(device) if asked(device) else torch.float32


def _declared(self: Any, *_: Any, **__: Any) -> bool:
    if not self._supports_flash_attn:
        raise ValueError(f"{type(self).__name__} does not support flash attention")
    return True
