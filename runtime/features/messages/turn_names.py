"""Names in the turns of stored conversations: speakers and keys. The compiler uses them, too."""

import re
from collections.abc import Mapping

CALLERS = ("function_call", "tool_call")
"""Speakers in from/value conversations (LLaMA-Factory's ShareGPT rows) whose turns are tool calls as JSON text."""
CALL_KEYS = ("name", "arguments", "id", "type", "index", "description")
"""The known keys of a tool call. A call with empty `arguments` and a value under an unknown key is refused."""
TRAINED = ("weight", "train", "train_turn", "training", "loss")
"""Keys of a turn that exclude it from the loss if the value is 0 or false (as in rows for OpenAI and axolotl)."""
MASKED = ("mask", "masked")
"""Keys of a turn that exclude it from the loss if the value is true (as in rows for torchtune)."""
MARKS = re.compile(r"train|learn|loss|mask|weight|supervis|ignore", re.IGNORECASE)
"""Matches names of keys that probably say whether a turn is learned, such as `loss_weight`."""


def with_roles(value: object, roles: Mapping[str, str]) -> object:
    """A turn, or a list of turns, with roles for the names of speakers; any other value is returned unchanged."""
    if isinstance(value, list):
        return [with_roles(turn, roles) if isinstance(turn, dict) else turn for turn in value]
    if not isinstance(value, dict):
        return value
    speakers = {key: value[key] for key in ("from", "role") if isinstance(value.get(key), str)}
    renamed = {key: roles[who] for key, who in speakers.items() if who in roles}
    return {**value, **renamed} if renamed else value
