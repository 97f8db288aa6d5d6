"""Divisors of large numbers, from their prime factors.

A spec may contain a number of any size. To try every smaller number as a divisor would then take too long, so the
divisors are computed from the prime factors. This module is imported only if a batch does not divide evenly, or a
micro-batch is chosen.
"""

from __future__ import annotations

LARGEST = 2**16
"""Numbers up to the square of LARGEST are factored completely."""


def divisors(most: int, *numbers: int) -> list[int]:
    """All divisors of the product of `numbers` that are at most `most`, in ascending order."""
    powers: dict[int, int] = {}
    for number in numbers:
        for prime in factors(number):
            powers[prime] = powers.get(prime, 0) + 1
    found = [1] if most >= 1 else []
    for prime, count in powers.items():
        grown = found
        for _ in range(count):
            grown = [one * prime for one in grown if one * prime <= most]
            found = found + grown
    return sorted(found)


def largest(most: int, *numbers: int) -> int:
    """The largest divisor of the product of `numbers` up to `most`; 1 if `most` is below 1."""
    return max(divisors(most, *numbers), default=1)


def nearest(to: int, *numbers: int) -> int | None:
    """The divisor of the product of `numbers` that is nearest to `to` and at least 2. If two divisors are equally near,
    the smaller one is returned. None if the product is 1.
    """
    primes = [prime for number in numbers for prime in factors(number)]
    if not primes:
        return None
    least = min(primes)
    return min(divisors(max(least, 2 * to - least), *numbers)[1:], key=lambda one: abs(one - to))


def factors(number: int) -> list[int]:
    """The prime factors of a positive number: for 12, these are 2, 2 and 3. Only primes up to LARGEST are found. The
    rest of the number counts as one factor; its prime factors are all larger than any micro-batch or number of
    processes.
    """
    out: list[int] = []
    factor = 2
    while factor * factor <= number and factor <= LARGEST:
        while number % factor == 0:
            out.append(factor)
            number //= factor
        factor += 1
    return [*out, number] if number > 1 else out
