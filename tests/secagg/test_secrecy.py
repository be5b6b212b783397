"""What leaves a site looks uniform, holds no key, and even all of it with t - 1 sites' help opens nothing."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2
from tests.secagg.consortium import Run, session, vector

from consilia.core.ring import Words
from consilia.crypto import shamir
from consilia.crypto.keys import ExchangeKey
from consilia.crypto.prg import Mask, apply_masks
from consilia.secagg import server
from consilia.secagg.keyring import Pair, adds, own_mask_key, pair_mask_key
from consilia.secagg.messages import Inbox, Masked, Reveal, Shares
from consilia.secagg.state import bind

A, B, LAST = "site-000", "site-001", "site-006"


def masked(run: Run, site: str) -> Words:
    (found,) = [m for s, m in run.said if s == site and isinstance(m, Masked)]
    return run.of.ring.unpack(found.payload, run.of.dim, who="test")


def spread(words: Words, bits: int) -> float:
    """Return the p-value of a chi-square of the top and of the low byte, whichever is less."""
    values = words.astype(np.uint64) & np.uint64((1 << bits) - 1)
    worst = 1.0
    for shift in (0, bits - 8):
        counts = np.bincount((values >> np.uint64(shift)).astype(np.int64) & 255, minlength=256)
        expected = len(values) / 256
        worst = min(worst, float(chi2.sf(((counts - expected) ** 2 / expected).sum(), 255)))
    return worst


@pytest.mark.parametrize("bits", [16, 24, 32, 64])
def test_masked_vectors_are_uniform_on_the_whole_ring(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.secagg.consortium.vector", lambda site, of: np.zeros(of.dim, of.ring.dtype))
    run = Run(session(3, bits=bits, dim=1 << 18))  # zeros: everything seen is mask
    run.play()
    for site in run.of.cohort:
        words = masked(run, site)
        assert spread(words, bits) > 1e-6
        if bits == 16:
            assert (words == 0xFFFF).any()  # the largest must be possible
            assert (words == 0).any()
    assert spread(np.minimum(masked(run, A), (1 << bits - 1)), bits) < 1e-6  # the test sees a mask of half the ring
    assert spread(vector(A, run.of) >> np.array(1, run.of.ring.dtype), bits) < 1e-6


def secrets_of(run: Run, site: str) -> Iterator[bytes]:
    """All that a site must keep: session secrets, long-term keys, agreed keys, its vector."""
    state = run.states[site]
    ring = state.keyring
    yield from (state.seed, state.identity.signing.seed, state.identity.sealing.private)
    yield from (ring._own, ring._mask.private, ring._channel.private)
    yield from ring._agreed.values()
    yield vector(site, run.of).tobytes()
    adverts = state.adverts.adverts
    for peer in run.of.cohort:
        if peer != site:
            yield ring.pair_key(peer, adverts[peer], state.bound)
            yield ring._mask.agree(adverts[peer].mask, who="test")
    yield ring.own_key(state.bound)


def test_key_material_never_leaves_in_clear() -> None:
    run = Run(session(7, dim=16), {"masked": [LAST]})
    assert isinstance(run.play(), server.Done)
    sent = b"|".join(bytes(message.to_bytes()) for _, message in run.said)
    heard = b"|".join(bytes(message.to_bytes()) for _, message in run.heard)
    assert len(sent) > 7 * 500
    for site in run.of.cohort:
        secrets = list(secrets_of(run, site))
        assert len(secrets) > 15
        for secret in secrets:
            for form in (secret, secret[::-1], secret.hex().encode()):
                assert form not in sent
                assert form not in heard
        assert run.states[site].keyring.unsigned().mask in sent  # the search finds what is there


def test_shares_leave_only_locked_and_revealed_ones_once_and_of_one_kind() -> None:
    run = Run(session(7), {"masked": [LAST]})
    run.play()
    state = run.states[A]
    boxed = b"".join(bytes(m.to_bytes()) for _, m in run.said if isinstance(m, Shares))
    opened = {s: m for s, m in run.said if isinstance(m, Reveal)}
    assert set(opened) == set(run.of.cohort) - {LAST}
    for owner in run.of.cohort:
        pairs: dict[str, Pair] = run.states[owner].keyring.pairs(run.of.threshold, run.of.cohort, state.adverts_digest)
        for holder, pair in pairs.items():
            assert pair.own_mask not in boxed
            assert pair.mask_key not in boxed
            if holder in opened:
                kind, hidden = (pair.mask_key, pair.own_mask) if owner == LAST else (pair.own_mask, pair.mask_key)
                assert opened[holder].shares[owner] == kind
                assert hidden not in b"".join(bytes(m.to_bytes()) for _, m in run.said)


def known_to(run: Run, colluders: tuple[str, ...]) -> dict[tuple[str, str], dict[int, bytes]]:
    """Every share that the coordinator and its colluders see: revealed ones, and what colluders were sent."""
    known: dict[tuple[str, str], dict[int, bytes]] = {}
    survivors = {s for s, m in run.said if isinstance(m, Masked)}
    for holder, message in run.said:
        if isinstance(message, Reveal):
            for owner, share in message.shares.items():
                known.setdefault((owner, "own" if owner in survivors else "key"), {})[run.of.number(holder)] = share
    for holder in colluders:
        state = run.states[holder]
        (box,) = [m for s, m in run.heard if s == holder and isinstance(m, Inbox)]
        for owner, envelope in box.envelopes.items():
            pair = state.keyring.open(owner, state.adverts.adverts[owner], envelope, state.bound)
            known.setdefault((owner, "own"), {})[run.of.number(holder)] = pair.own_mask
            known.setdefault((owner, "key"), {})[run.of.number(holder)] = pair.mask_key
    return known


def attack(run: Run, target: str, colluders: tuple[str, ...]) -> NDArray[np.int64] | None:
    """Open the target's vector with all that coordinator and colluders know; None if a secret is out of reach."""
    known, t = known_to(run, colluders), run.of.threshold
    adverts = run.states[A].adverts
    bound = bind(run.of, run.states[A].adverts_digest)

    def rebuilt(owner: str, kind: str) -> bytes | None:
        shares = known.get((owner, kind), {})
        some = tuple(sorted(shares)[:t])
        return shamir.combine(shares, shamir.weights(some), who="attack") if len(some) == t else None

    words = masked(run, target).copy()
    own = rebuilt(target, "own")
    if own is None:
        return None
    masks = [Mask(own_mask_key(own, target, bound), add=False)]
    key = rebuilt(target, "key")
    for peer in run.of.cohort:
        if peer == target:
            continue
        if peer in colluders:
            shared = run.states[peer].keyring.pair_key(target, adverts.adverts[target], bound)
        elif key is not None:
            shared = pair_mask_key(ExchangeKey(key), target, peer, adverts.adverts[peer].mask, bound)
        elif (other := rebuilt(peer, "key")) is not None:
            shared = pair_mask_key(ExchangeKey(other), peer, target, adverts.adverts[target].mask, bound)
        else:
            return None
        masks.append(Mask(shared, add=not adds(target, peer)))
    apply_masks(words, masks)
    return run.of.ring.center(words)


@pytest.mark.parametrize("silent", [{}, {"masked": [LAST]}], ids=["all answer", "one drops out"])
def test_coordinator_and_any_t_minus_1_sites_cannot_open_another(silent: dict[str, list[str]]) -> None:
    run = Run(session(7, adversary="passive"), silent)
    run.play()
    honest_enough = run.of.threshold - 1
    assert honest_enough == 3
    for colluders in itertools.combinations(run.of.cohort[1:], honest_enough):
        assert attack(run, A, colluders) is None


def test_the_attack_works_with_t_sites_or_the_test_above_would_say_nothing() -> None:
    run = Run(session(7, adversary="passive"))
    run.play()
    opened = attack(run, A, run.of.cohort[1:5])
    np.testing.assert_array_equal(opened, run.of.ring.center(vector(A, run.of)))


def test_what_a_site_sends_does_not_depend_on_its_vector_but_for_the_masked_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = []
    for salt in (0, 1):
        monkeypatch.setattr("tests.secagg.consortium.vector", lambda site, of, s=salt: vector(site, of, salt=s))
        run = Run(session(4))
        run.play()
        runs.append([(s, m.STAGE, bytes(m.to_bytes())) for s, m in run.said])
    first, second = ({(s, stage): raw for s, stage, raw in said} for said in runs)
    assert {key for key in first if first[key] != second[key]} == {(site, "masked") for site in session(4).cohort}
    assert {len(raw) for (_, stage), raw in first.items() if stage == "masked"} == {12}
