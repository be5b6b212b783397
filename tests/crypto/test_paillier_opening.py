"""What a coordinator that breaks the protocol gets a site to open: nothing but the sum of the agreed vectors."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.crypto.paillier_run import ROUND, Run, rng

from consilia.core.errors import ProtocolError
from consilia.core.randomness import SecretRng
from consilia.crypto.paillier_opening import Opening
from consilia.crypto.paillier_tags import tag

RUN = Run.real(count=4)
PUBLIC = RUN.key.public
VECTORS = [np.arange(250) * sign for sign in (1, -1, 3)]
PAYLOADS = RUN.encrypt(VECTORS)
TOTAL = RUN.sums.add(PAYLOADS, 250)
OPENING = Opening(ROUND, 250, (1, 2, 3, 4), (1, 2, 3), 3)
Numbers = list[int]
Change = Callable[[Numbers, Numbers], Numbers]


def refused(total: bytes, opening: Opening = OPENING, words: str = "the sum of exactly what the listed sites") -> None:
    with pytest.raises(ProtocolError, match=words):
        RUN.open(total, opening)


def test_the_agreed_sum_opens() -> None:
    assert (RUN.open(TOTAL, OPENING) == np.sum(VECTORS, axis=0)).all()
    assert (RUN.open(TOTAL, replace(OPENING, contributors=(3, 1, 2))) == np.sum(VECTORS, axis=0)).all()


def test_single_vectors_and_other_sums_stay_closed() -> None:
    for single in PAYLOADS:
        refused(single)
    refused(RUN.sums.add(PAYLOADS[:2], 250))
    refused(RUN.sums.add([TOTAL, PAYLOADS[0]], 250))
    refused(RUN.sums.add([PAYLOADS[0]] * 3, 250))
    refused(RUN.sums.add([PAYLOADS[0], PAYLOADS[1], PAYLOADS[1]], 250))


def test_a_site_of_the_coordinators_own_making_does_not_count() -> None:
    """It can encrypt zeros as anybody can; a tag it cannot make."""
    padding = RUN.lanes.pack(np.zeros(250, np.int64))
    forged = PUBLIC.write([1 + plain * PUBLIC.n for plain in padding], 0)
    refused(RUN.sums.add([PAYLOADS[0], forged, forged], 250))
    refused(RUN.sums.add([*PAYLOADS, forged], 250), replace(OPENING, contributors=(1, 2, 3, 4)))


CHANGES: dict[str, Change] = {
    "one block of one site alone": lambda total, single: [single[0], *total[1:]],
    "two blocks exchanged": lambda total, single: [total[0], total[2], total[1]],
    "a site twice in one block": lambda total, single: [*total[:2], total[2] * single[2] % PUBLIC.square],
    "a known number added": lambda total, single: [total[0] * (1 + PUBLIC.n * 2**40) % PUBLIC.square, *total[1:]],
    "a site shifted to upper lanes": lambda total, single: [
        total[0] * pow(single[0], 2 ** (RUN.lanes.width * 60), PUBLIC.square) % PUBLIC.square, *total[1:],
    ],
    "a site times a prime": lambda total, single: [
        total[0] * pow(single[0], 2**127 - 1, PUBLIC.square) % PUBLIC.square, *total[1:],
    ],
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changed_ciphertexts_stay_closed(change: Change) -> None:
    total, claimed = PUBLIC.read(TOTAL, 3, who="x")
    single, _ = PUBLIC.read(PAYLOADS[1], 3, who="x")
    refused(PUBLIC.write(change(total, single), claimed))


def test_a_changed_tag_is_refused() -> None:
    total, claimed = PUBLIC.read(TOTAL, 3, who="x")
    for other in (0, claimed + 1, claimed - 1):
        refused(PUBLIC.write(total, other))


def test_another_context_stays_closed() -> None:
    refused(TOTAL, replace(OPENING, context=b"round 2"))
    mixed = [*PAYLOADS[:2], RUN.cipher(3, b"round 2").encrypt(VECTORS[2], rng("again"))]
    refused(RUN.sums.add(mixed, 250))


@pytest.mark.parametrize("contributors", [(), (1, 2), (1, 2, 2), (1, 2, 3, 3), (1, 2, 5), (0, 1, 2)])
def test_too_few_repeated_and_foreign_contributors_are_refused(contributors: tuple[int, ...]) -> None:
    refused(TOTAL, replace(OPENING, contributors=contributors), "the contributors of a sum to open needs 3 or more")


def test_one_site_opens_a_context_and_it_is_not_always_the_same() -> None:
    for site in (1, 2, 3, 4):
        if site != OPENING.opener:
            with pytest.raises(ProtocolError, match=f"site {OPENING.opener}, whose turn it is"):
                RUN.key.decrypt(TOTAL, OPENING, lanes=RUN.lanes, site=site, answered=set())
    turns = [replace(OPENING, context=bytes([i]), contributors=(i,)).opener for i in range(100)]
    assert turns == [replace(OPENING, context=bytes([i]), cohort=(4, 2, 3, 1)).opener for i in range(100)]
    assert all(10 < turns.count(site) < 45 for site in (1, 2, 3, 4))


def test_a_context_is_answered_once() -> None:
    before = {b"round 0", ROUND}
    with pytest.raises(ProtocolError, match="a context that this site has not answered for"):
        RUN.key.decrypt(TOTAL, OPENING, lanes=RUN.lanes, site=OPENING.opener, answered=before)
    RUN.key.decrypt(TOTAL, OPENING, lanes=RUN.lanes, site=OPENING.opener, answered={b"round 0"})


def test_tags_look_random_and_differ_with_everything() -> None:
    n, plaintexts, group = PUBLIC.n, [3, 2**2000, 0], RUN.key.group
    tags = {
        tag(n, group, ROUND, plaintexts, [1]),
        tag(n, group, ROUND, plaintexts, [2]),
        tag(n, group, b"other", plaintexts, [1]),
        tag(n, bytes(32), ROUND, plaintexts, [1]),
        tag(n, group, ROUND, [3, 2**2000, 1], [1]),
        tag(n, group, ROUND, [0, 0, 0], [1]),
    }
    assert len(tags) == 6
    assert all(n >> 64 < value < n for value in tags)


def test_tags_add_up() -> None:
    n, group, stream = PUBLIC.n, RUN.key.group, SecretRng(bytes(32))
    one, two = ([int.from_bytes(stream.token(250), "big") for _ in range(4)] for _ in range(2))
    both = tag(n, group, ROUND, [a + b for a, b in zip(one, two, strict=True)], [7, 9])
    assert both == (tag(n, group, ROUND, one, [7]) + tag(n, group, ROUND, two, [9])) % n
