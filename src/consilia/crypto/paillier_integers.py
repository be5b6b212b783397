"""Long integers: GMP's where gmpy2 is installed, Python's own elsewhere. The results are the same to the byte."""

try:
    import gmpy2
except ImportError:  # the extra `paillier` is not installed
    gmpy2 = None


def number(value: int) -> int:
    """Return the integer in the quickest form there is; it computes with the usual operators."""
    if gmpy2 is None:
        return value
    quick: int = gmpy2.mpz(value)
    return quick


def secret_power(base: int, exponent: int, modulus: int) -> int:
    """Return base^exponent mod modulus for a secret exponent > 0 and an odd modulus.

    With gmpy2 this is GMP's `mpz_powm_sec`, whose time and memory accesses do not depend on the exponent's bits.
    Python's own `pow`, which serves without it, makes no such promise.
    """
    if gmpy2 is None:
        return pow(base, exponent, modulus)
    power: int = gmpy2.powmod_sec(base, exponent, modulus)
    return power
