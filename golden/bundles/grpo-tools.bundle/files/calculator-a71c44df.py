"""A tool, and an environment with a reward."""


def product(a: float, b: float) -> float:
    """Multiply two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a * b


class Notes:
    """Notes that the model writes while it thinks; each note of an answer is a tenth of a point."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def reset(self, **row: object) -> str:
        """Begin with an empty page."""
        self.notes = []
        return " Write notes."

    def note(self, text: str) -> str:
        """Write a note.

        Args:
            text: What to write.
        """
        self.notes.append(text)
        return f"{len(self.notes)} notes"

    def get_reward(self) -> float:
        """A tenth for each note, at most one point."""
        return min(len(self.notes), 10) / 10
