"""The key ceremony: what is missing, malformed or changed is refused; shares are Shamir's of the sum of the keys."""

from itertools import combinations

import numpy as np
import pytest
from tests.crypto.rlwe_run import RUN, contributions, keys, rng

from consilia.core.errors import ProtocolError
from consilia.crypto.rlwe_field import Factor
from consilia.crypto.rlwe_keys import KeyShare, contribute, joint_key, reference
from consilia.crypto.rlwe_ntt import transform
from consilia.crypto.rlwe_parameters import ETA, PRIMES, RlweParameters

PARAMETERS = RlweParameters(4, 3, 4, 1, 1)
PARTS = contributions(4, 3)
PUBLICS = {site: part.public for site, part in PARTS.items()}
COMMITMENTS = {site: part.commitment for site, part in PARTS.items()}


def rebuilt(sites: tuple[int, ...], place: int, p: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return the secret that these sites' shares determine modulo p, transformed, shape (64, 64)."""
    total = np.zeros((64, 64), np.int64)
    for site in sites:
        weight = 1
        for other in sites:
            if other != site:
                weight = weight * other * pow(other - site, -1, p) % p
        total += keys(4, 3)[1][site].values[place].astype(np.int64) * weight % p
    return total % p


def test_any_t_shares_are_of_one_small_secret_that_fits_the_public_key() -> None:
    joint, _ = keys(4, 3)
    for place, p in enumerate(PRIMES):
        secret = rebuilt((1, 2, 3), place, p)
        for sites in combinations(range(1, 5), 3):
            assert (rebuilt(sites, place, p) == secret).all()
        ntt, prime = transform(p), transform(p).prime
        s = prime.centred(secret)[None]
        assert np.abs(ntt.inverse(s)).max() <= 4
        a = Factor(prime.centred(reference(RUN)[place]))
        error = ntt.inverse(prime.reduce(prime.centred(joint.b[place]) + prime.times(s, a)))
        assert 0 < np.abs(error).max() <= 4 * ETA


def test_fewer_shares_give_something_else() -> None:
    p = PRIMES[0]
    small = transform(p).inverse(transform(p).prime.centred(rebuilt((1, 2), 0, p))[None])
    assert np.abs(small).max() > p / 4


def test_the_reference_is_a_hash_of_the_context() -> None:
    assert (reference(b"run") == reference(b"run")).all()
    assert (reference(b"run") == reference(b"ruN")).mean() < 0.001
    assert all((part < p).all() and part.max() > 0.999 * p for part, p in zip(reference(b"run"), PRIMES, strict=True))


def test_the_joint_key_takes_every_site_s_part_and_no_other() -> None:
    for publics in ({}, {1: PUBLICS[1]}, {**PUBLICS, 5: PUBLICS[1]}, {site: PUBLICS[site] for site in (1, 2, 3)}):
        with pytest.raises(ProtocolError, match="one of each"):
            joint_key(PARAMETERS, RUN, publics, COMMITMENTS)
    with pytest.raises(ProtocolError, match="one of each"):
        KeyShare.gather(PARAMETERS, 1, {2: PARTS[2].shares[1]})


def test_a_part_chosen_after_the_others_is_refused() -> None:
    """The rogue key: own part less all others, so that the joint key is the last site's own."""
    other = contribute(PARAMETERS, 4, RUN, rng("rogue"))
    for site, public in ((4, other.public), (3, PUBLICS[4])):
        with pytest.raises(ProtocolError, match="committed"):
            joint_key(PARAMETERS, RUN, {**PUBLICS, site: public}, COMMITMENTS)
    for commitments in ({}, {**COMMITMENTS, 3: COMMITMENTS[4]}):
        with pytest.raises(ProtocolError, match="committed"):
            joint_key(PARAMETERS, RUN, PUBLICS, commitments)
    with pytest.raises(ProtocolError, match="committed"):
        joint_key(PARAMETERS, b"another run", PUBLICS, COMMITMENTS)


def test_malformed_parts_and_shares_are_refused() -> None:
    share = PARTS[2].shares[1]
    good = {sender: part.shares[1] for sender, part in PARTS.items()}
    for bad in (b"", share[:-1], share + b"\0", share[:32] + b"\xff" * (len(share) - 32)):
        with pytest.raises(ProtocolError, match="site 2"):
            KeyShare.gather(PARAMETERS, 1, {**good, 2: bad})


def test_all_sites_have_the_same_group_key_and_its_every_part_matters() -> None:
    groups = {share.group for share in keys(4, 3)[1].values()}
    assert len(groups) == 1
    good = {sender: part.shares[1] for sender, part in PARTS.items()}
    changed = KeyShare.gather(PARAMETERS, 1, {**good, 2: bytes(32) + good[2][32:]})
    assert changed.group not in groups


def test_secrets_are_not_printed() -> None:
    share, part = keys(4, 3)[1][1], PARTS[1]
    assert "values" not in repr(share)
    assert "shares" not in repr(part)
    assert share.group.hex() not in repr(share)
