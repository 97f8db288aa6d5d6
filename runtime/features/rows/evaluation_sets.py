"""Several named evaluation sets that behave like a single one, for trl's trainers that accept only one set."""

from typing import Any


class Sets(dict[str, Any]):
    """Several evaluation sets by name. Trainers of trl that expect a single set call its methods ``map`` and ``filter``
    (orpo, cpo; kto and reward of trl 0.18)."""

    def map(self, *args: Any, **kwargs: object) -> "Sets":
        """The same sets, each after ``Dataset.map``."""
        return Sets({name: rows.map(*args, **kwargs) for name, rows in self.items()})

    def filter(self, *args: Any, **kwargs: object) -> "Sets":
        """The same sets, each after ``Dataset.filter``."""
        return Sets({name: rows.filter(*args, **kwargs) for name, rows in self.items()})

    @property
    def column_names(self) -> list[str]:
        """The columns of the first set. All sets have the same columns."""
        return list(next(iter(self.values())).column_names)


def joined_sets(parts: list[Any], axis: int = 0) -> object:
    """Join datasets (``concatenate_datasets``), or join `Sets`: trl 0.18's kto trainer adds columns in this way."""
    import datasets

    if not isinstance(parts[0], Sets):
        return datasets.concatenate_datasets(parts, axis=axis)
    return Sets({name: datasets.concatenate_datasets([part[name] for part in parts], axis=axis) for name in parts[0]})
