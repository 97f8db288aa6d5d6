"""A torch model with every kind of weight that the runtime can freeze. It has a file of its own, so that collecting the
tests does not import torch.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch


class Layer(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.attn = torch.nn.Linear(2, 2, bias=False)
        self.mlp = torch.nn.Linear(2, 2, bias=False)


class Model(torch.nn.Module):  # type: ignore[misc]
    """Embeddings, three layers and a head. With `tied`, head and embeddings share one weight."""

    def __init__(self, tied: bool = False) -> None:
        super().__init__()
        self.config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(num_hidden_layers=3))
        self.model = torch.nn.Module()
        self.model.embed = torch.nn.Embedding(5, 2)
        self.model.layers = torch.nn.ModuleList(Layer() for _ in range(3))
        self.model.norm = torch.nn.LayerNorm(2, bias=False)
        self.lm_head = torch.nn.Linear(2, 5, bias=False)
        self.score = torch.nn.Linear(2, 1, bias=False)
        self.inputs_have_gradients = False
        if tied:
            self.lm_head.weight = self.model.embed.weight

    def enable_input_require_grads(self) -> None:
        self.inputs_have_gradients = True
