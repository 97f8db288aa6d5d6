"""Divide attention heads among processes that share a sequence or a model."""

from xpc.compiler.plan.divisors import divisors


def can_share(heads: int, keys: int, size: int) -> bool:
    """Whether `size` processes can get equal parts of `heads` query heads and `keys` key heads. If there are more
    processes than key heads, several processes get a copy of one key head.
    """
    return heads % size == 0 and (keys % size == 0 or size % keys == 0)


def fitting_sizes(heads: int, keys: int, most: int) -> list[int]:
    """All numbers of processes from 1 to `most` among which the heads can be divided, in ascending order."""
    return [one for one in divisors(most, heads) if can_share(heads, keys, one)]
