"""Proofs of rules about renamed and removed names."""

from __future__ import annotations

from prove import GONE, Proof

ALIAS = "gradient_checkpointing.*deprecated"

PROOFS: tuple[Proof, ...] = (
    Proof("X01", "XP121", case="XP121-removed", onto="legal", arguments={"save_safetensors": False}, raises="TypeError",
          match="save_safetensors"),
    Proof("X01", "XP121", case="XP121-renamed", onto="legal", arguments={"group_by_length": True}, raises="TypeError",
          match="group_by_length", variant="renamed"),
    Proof("X02", "XP120", case="XP120-renamed", onto="legal", arguments={"max_seq_length": 2048}, raises="TypeError",
          match="max_seq_length"),
    Proof("X03", "XP101", case="XP101-torch-dtype", onto="legal", arguments={"torch_dtype": "float32"},
          raises="TypeError", match="torch_dtype"),
    Proof("X04", "XP120", case="XP120-alias", onto="legal", warns=ALIAS,
          arguments={"activation_checkpointing": GONE, "gradient_checkpointing": True}),
    Proof("X05", "XP120", case="XP120-both-names", onto="legal", measure="names.checkpointing", expect={"asked": True, "on": False},
          arguments={"gradient_checkpointing": True, "activation_checkpointing": False}),
    Proof("X06", "XP106", case="XP106-bfd-requeue", onto="legal", arguments={"packing_strategy": "bfd-requeue"},
          warns="bfd-requeue.*deprecated"),
    Proof("X07", "XP120", case="XP120-deprecated", onto="legal", arguments={"pad_token": "<|endoftext|>"},
          warns="pad_token.*deprecated"),
    Proof("X08", "XP410", arguments={"fsdp": "full_shard"}, warns="fsdp.*string.*deprecated"),
)  # fmt: skip
