"""Read typed values from a Hugging Face `config.json`."""

from collections.abc import Mapping


class ConfigError(Exception):
    """Raised for a configuration whose parameters cannot be counted. The message is a sentence to print
    for the user.
    """


class Config:
    """Typed access to the keys of a config.json. A key whose value is null counts as absent, as in transformers."""

    def __init__(self, values: Mapping[str, object], model_type: str) -> None:
        self.values = values
        self.model_type = model_type

    def integer(self, *keys: str, default: int | None = None) -> int:
        """Return the value of the first of `keys` whose value is a whole number of at least 1. If no key has such a
        value, return the default, or raise ConfigError if no default is given.
        """
        for key in keys:
            value = self.values.get(key)
            if isinstance(value, int) and not isinstance(value, bool):
                if value < 1:
                    raise ConfigError(
                        f"`{key}` must be at least 1 in the configuration of this `{self.model_type}` model"
                    )
                return value
        if default is None:
            raise ConfigError(f"the configuration of this `{self.model_type}` model has no `{keys[0]}`")
        return default

    def flag(self, key: str, default: bool) -> bool:
        """Return the value of a boolean key, or the default if it is absent."""
        value = self.values.get(key)
        return value if isinstance(value, bool) else default

    def text(self, key: str) -> str | None:
        """Return the value of a key that is a text, or None."""
        value = self.values.get(key)
        return value if isinstance(value, str) else None
