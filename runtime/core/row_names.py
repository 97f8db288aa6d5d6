"""Names in stored conversations, such as those of speakers, that the runtime and the compiler know."""

ROLES = {
    "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "chatgpt": "assistant",
    "model": "assistant", "bot": "assistant", "system": "system", "tool": "tool", "function": "tool",
    "observation": "tool", "tool_response": "tool",
}  # fmt: skip
"""Maps names of speakers in from/value conversations (ShareGPT and similar) to roles of chat templates."""
REASONING = ("reasoning_content", "reasoning", "thinking")
"""Keys of a message that contain the model's reasoning before its answer."""
