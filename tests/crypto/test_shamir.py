"""Any t shares give the secret; fewer fit every secret equally."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilia.core.errors import ProtocolError
from consilia.core.randomness import SecretRng
from consilia.crypto.shamir import PRIME, SHARE_SIZE, combine, split, weights

secrets = st.binary(min_size=32, max_size=32) | st.sampled_from([bytes(32), b"\xff" * 32])


def rebuilt(shares: dict[int, bytes], holders: tuple[int, ...]) -> bytes:
    return combine(shares, weights(holders), who="it")


@given(secrets, st.integers(1, 7), st.integers(0, 3), st.binary(min_size=32, max_size=32))
def test_any_t_of_n_shares_give_the_secret(secret: bytes, t: int, more: int, key: bytes) -> None:
    holders = [3 * i + 1 for i in range(t + more)]
    shares = split(secret, t, holders, SecretRng(key))
    assert {len(share) for share in shares.values()} == {SHARE_SIZE}
    for some in combinations(holders, t):
        assert rebuilt(shares, some) == secret


@given(secrets, secrets, st.integers(2, 6), st.binary(min_size=32, max_size=32))
def test_t_minus_1_shares_fit_any_other_secret(secret: bytes, other: bytes, t: int, key: bytes) -> None:
    shares = split(secret, t, range(1, t + 1), SecretRng(key))
    few = tuple(range(1, t))
    # The share of one more holder that makes these the shares of `other`: it exists, whatever `other` is.
    lagrange = weights((*few, t))
    missing = int.from_bytes(other, "little") - sum(lagrange[x] * int.from_bytes(shares[x], "little") for x in few)
    fitting = {**shares, t: (missing * pow(lagrange[t], -1, PRIME) % PRIME).to_bytes(SHARE_SIZE, "little")}
    assert rebuilt(fitting, (*few, t)) == other


def test_shares_of_one_secret_are_never_the_same_twice() -> None:
    rng = SecretRng(b"k" * 32)
    assert len({split(bytes(32), 2, [1], rng)[1] for _ in range(50)}) == 50


def test_shares_look_uniform_whatever_the_secret() -> None:
    rng = SecretRng(b"k" * 32)
    high = sum(int.from_bytes(split(bytes(32), 3, [5], rng)[5], "little") > PRIME // 2 for _ in range(2000))
    assert abs(high - 1000) < 6 * 22.4  # 2000 fair coins: standard deviation 22.4


@given(secrets, st.integers(0, 31))
def test_a_changed_share_gives_another_secret_or_none(secret: bytes, place: int) -> None:
    shares = split(secret, 3, [1, 2, 3], SecretRng(b"k" * 32))
    changed = bytearray(shares[2])
    changed[place] ^= 1
    try:
        assert rebuilt({**shares, 2: bytes(changed)}, (1, 2, 3)) != secret
    except ProtocolError:
        return


def test_what_is_no_secret_of_32_bytes_is_refused() -> None:
    large = (PRIME - 1).to_bytes(SHARE_SIZE, "little")
    with pytest.raises(ProtocolError, match="a secret of 32 bytes"):
        combine({1: large}, weights((1,)), who="it")


@pytest.mark.parametrize(("secret", "t", "holders"), [
    (bytes(31), 2, [1, 2]), (bytes(33), 2, [1, 2]), (bytes(32), 0, [1, 2]), (bytes(32), 2, [0, 1]), (bytes(32), 2, [-1]),
    (bytes(32), 2, [1 << 32]),
])  # fmt: skip
def test_what_cannot_be_shared(secret: bytes, t: int, holders: list[int]) -> None:
    with pytest.raises(ValueError, match="A "):
        split(secret, t, holders, SecretRng(bytes(32)))


def test_the_field_is_prime() -> None:
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):  # Miller and Rabin
        odd, twos = PRIME - 1, 0
        while odd % 2 == 0:
            odd, twos = odd // 2, twos + 1
        x = pow(base, odd, PRIME)
        assert x in (1, PRIME - 1) or any((x := x * x % PRIME) == PRIME - 1 for _ in range(twos - 1))
