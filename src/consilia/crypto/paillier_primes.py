"""Secret primes for a Paillier key, from a secret stream."""

import math

from consilia.core.randomness import SecretRng

_SIEVE = 168  # primes below 1000: nine of ten candidates go before the costly test


def is_prime(value: int) -> bool:
    """Return whether a number is prime by the Baillie-PSW test; no composite number that passes it is known."""
    from sympy import isprime  # noqa: PLC0415  (takes a third of a second; only those who make or get a key need it)

    return bool(isprime(value))


def prime(bits: int, rng: SecretRng) -> int:
    """Return a random prime of exactly `bits` bits (a multiple of 8), 3 mod 4, its two highest bits set.

    Two such primes make a modulus of exactly 2 x `bits` bits.
    """
    from sympy import primorial  # noqa: PLC0415  (as above)

    small = int(primorial(_SIEVE))
    while True:
        candidate = int.from_bytes(rng.token(bits // 8), "big") | 3 << (bits - 2) | 3
        if math.gcd(candidate, small) == 1 and is_prime(candidate):
            return candidate
