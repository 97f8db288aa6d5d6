"""Divisors of large numbers by their prime factors.

A spec may contain any number, so no loop may run as often as a number is large. This module is loaded only if something
does not divide, or a micro-batch is chosen.
"""

from __future__ import annotations

from math import gcd

SMALL = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
"""Witnesses that decide for every number below 3.3e24 whether it is prime (Sorenson and Webster 2015)."""


def divisors(most: int, *numbers: int) -> list[int]:
    """The divisors of the product of positive numbers that are at most `most`, from 1 upwards."""
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
    """The largest divisor of the product that is at most `most`; 1 if `most` is below 1."""
    return max(divisors(most, *numbers), default=1)


def nearest(to: int, *numbers: int) -> int | None:
    """The divisor of the product, at least 2, that is nearest to `to`; the smaller of two equally near ones; None for a
    product of 1.
    """
    primes = [prime for number in numbers for prime in factors(number)]
    if not primes:
        return None
    least = min(primes)
    return min(divisors(max(least, 2 * to - least), *numbers)[1:], key=lambda one: abs(one - to))


def factors(number: int) -> list[int]:
    """The prime factors of a positive number, each as often as it divides it."""
    out: list[int] = []
    for prime in SMALL:
        while number > 1 and number % prime == 0:
            out.append(prime)
            number //= prime
    todo = [number] if number > 1 else []
    while todo:
        one = todo.pop()
        if _is_prime(one):
            out.append(one)
        else:
            part = _part(one)
            todo += [part, one // part]
    return sorted(out)


def _is_prime(number: int) -> bool:
    """Miller and Rabin's test of an odd number with no factor in SMALL."""
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for witness in SMALL:
        x = pow(witness, odd, number)
        if x in (1, number - 1):
            continue
        for _ in range(twos - 1):
            x = x * x % number
            if x == number - 1:
                break
        else:
            return False
    return True


def _part(number: int) -> int:
    """A proper factor of an odd composite number by Pollard's rho, which takes some thousand steps for 18 digits."""
    for shift in range(1, number):
        slow = fast = 2
        part = 1
        while part == 1:
            slow = (slow * slow + shift) % number
            fast = (fast * fast + shift) % number
            fast = (fast * fast + shift) % number
            part = gcd(slow - fast, number)
        if part != number:
            return part
    raise AssertionError(f"{number} is prime")
