"""Give several named evaluation sets to those of trl's trainers that accept only one set."""

from typing import Any


class Sets(dict[str, Any]):
    """Several evaluation sets by name, with the methods of one set: some of trl's trainers do not support dictionaries
    and call ``map`` and ``filter`` (orpo, cpo; kto and reward of trl 0.18)."""

    def map(self, *args: Any, **kwargs: Any) -> "Sets":
        """The same sets after ``Dataset.map`` of each set."""
        return Sets({name: rows.map(*args, **kwargs) for name, rows in self.items()})

    def filter(self, *args: Any, **kwargs: Any) -> "Sets":
        """The same sets after ``Dataset.filter`` of each set."""
        return Sets({name: rows.filter(*args, **kwargs) for name, rows in self.items()})

    @property
    def column_names(self) -> list[str]:
        """The columns of the first set; all sets have the same."""
        return list(next(iter(self.values())).column_names)


def joined_sets(parts: list[Any], axis: int = 0) -> Any:
    """A ``concatenate_datasets`` that accepts `Sets`; the kto trainer of trl 0.18 adds columns with it."""
    import datasets

    if not isinstance(parts[0], Sets):
        return datasets.concatenate_datasets(parts, axis=axis)
    return Sets({name: datasets.concatenate_datasets([part[name] for part in parts], axis=axis) for name in parts[0]})
