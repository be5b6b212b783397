"""Tags add up, and see every place of what they are made of."""

import numpy as np
import pytest
from tests.crypto.rlwe_run import rng

from consilia.core.errors import ProtocolError
from consilia.core.randomness import SecretRng
from consilia.crypto.rlwe_field import Residues
from consilia.crypto.rlwe_parameters import PRIMES
from consilia.crypto.rlwe_sampling import uniform
from consilia.crypto.rlwe_tags import SIZE, TIMES, read, split, tag, write

GROUP, ROUND = bytes(range(32)), b"round 1"
BLOCKS = 9  # more than are worked on at a time


def masks(label: int) -> Residues:
    parts = [uniform(p, BLOCKS * 4096, rng("masks", label, p)).reshape(BLOCKS, 64, 64) for p in PRIMES]
    return np.array(parts)


def modulo(values: np.ndarray[tuple[int, ...], np.dtype[np.uint64]]) -> Residues:
    return (values % np.array(PRIMES, np.uint64).reshape(-1, *[1] * (values.ndim - 1))).astype(np.uint32)


def test_it_is_the_sum_that_defines_it() -> None:
    c, draws = masks(1), SecretRng(GROUP).derive("rlwe tag", ROUND.hex())
    for place, p in enumerate(PRIMES):
        stream = draws.derive("hash", p)
        beta, alpha, rho = (uniform(p, TIMES * n, stream).reshape(n, TIMES).astype(object) for n in (64, 64, BLOCKS))
        pads = [uniform(p, TIMES, draws.derive("pad", p, site)).astype(object) for site in (2, 5)]
        for time in range(TIMES):
            columns = (c[place].astype(object) * beta[:, time]).sum(axis=2) % p
            slow = ((columns * alpha[:, time]).sum(axis=1) % p * rho[:, time]).sum() + pads[0][time] + pads[1][time]
            assert tag(GROUP, ROUND, c, (2, 5))[place, time] == slow % p


def test_tags_of_sites_add_up_to_the_tag_of_their_sum() -> None:
    first, second = masks(1), masks(2)
    total = modulo(first.astype(np.uint64) + second)
    added = tag(GROUP, ROUND, first, [1]).astype(np.uint64) + tag(GROUP, ROUND, second, [2])
    assert (modulo(added) == tag(GROUP, ROUND, total, (2, 1))).all()


@pytest.mark.parametrize("axis", [1, 2, 3], ids=["blocks", "rows", "columns"])
def test_what_is_moved_is_seen(axis: int) -> None:
    c = masks(1)
    assert (tag(GROUP, ROUND, c, [1]) != tag(GROUP, ROUND, np.roll(c, 1, axis), [1])).all()


@pytest.mark.parametrize("place", [(0, 0, 0, 0), (1, 8, 63, 63), (2, 4, 10, 20)])
def test_one_residue_that_differs_is_seen_four_times(place: tuple[int, ...]) -> None:
    c = masks(1)
    changed = c.copy()
    changed[place] ^= 1
    differs = tag(GROUP, ROUND, c, [1]) != tag(GROUP, ROUND, changed, [1])
    assert differs.all(axis=1).tolist() == [prime == place[0] for prime in range(3)]


def test_it_depends_on_the_key_the_context_and_the_sites() -> None:
    c = masks(1)
    of = tag(GROUP, ROUND, c, [1])
    for other in (tag(bytes(32), ROUND, c, [1]), tag(GROUP, b"round 2", c, [1]), tag(GROUP, ROUND, c, [2])):
        assert (of != other).all()


def test_writing_is_strict() -> None:
    of = tag(GROUP, ROUND, masks(1), [1])
    payload = write(of)
    assert len(payload) == SIZE
    assert (read(payload, who="a tag") == of).all()
    assert [bytes(part) for part in split(b"before" + payload)] == [b"before", payload]
    assert [bytes(part) for part in split(b"short")] == [b"", b"short"]
    for bad in (b"", payload[:-1], payload + b"\0"):
        with pytest.raises(ProtocolError, match="48 bytes"):
            read(bad, who="a tag")
    for prime, p in enumerate(PRIMES):
        spoilt = of.copy()
        spoilt[prime, 3] = p
        with pytest.raises(ProtocolError, match="residues"):
            read(write(spoilt), who="a tag")
