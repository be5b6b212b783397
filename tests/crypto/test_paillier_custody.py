"""Who holds the key, who can take it, and that the limit on the card is true."""

import numpy as np
import pytest
from tests.crypto.paillier_run import ROUND, Run, real_key, rng

from consilia.core.errors import ProtocolError
from consilia.crypto.keys import ExchangeKey
from consilia.crypto.paillier_handover import hand_over, take_over
from consilia.crypto.paillier_key import LIMIT, PaillierKey
from consilia.crypto.paillier_opening import Opening
from consilia.crypto.paillier_primes import prime
from consilia.crypto.sealing import seal
from consilia.crypto.signing import SigningKey

MAKER, READER = SigningKey.draw(rng("maker")), ExchangeKey.draw(rng("reader"))
CONTEXT = bytes(range(32))


def handed(key: PaillierKey) -> bytes:
    return hand_over(key, context=CONTEXT, maker=MAKER, reader=READER.public, rng=rng("seal"))


def taken(payload: bytes, *, bits: int = 2048) -> PaillierKey:
    return take_over(payload, context=CONTEXT, maker=MAKER.public, reader=READER, bits=bits)


def test_the_key_arrives() -> None:
    assert taken(handed(real_key())) == real_key()


def test_nothing_of_the_key_is_in_what_the_coordinator_carries() -> None:
    key, run = real_key(), Run.real()
    payloads = run.encrypt([np.arange(300)] * 3)
    carried = b"".join([handed(key), key.public.to_bytes(), *payloads, run.sums.add(payloads, 300)])
    assert not found(key, carried)
    assert found(key, carried + key.to_bytes()) == {"p", "q"}  # the search would see it
    assert found(key, carried + key.group) == {"group"}


def found(key: PaillierKey, carried: bytes) -> set[str]:
    """Return the secrets of which 16 bytes in a row, in either order, are among those carried."""
    half = key.p.bit_length() // 8
    secrets = {"p": key.p.to_bytes(half, "big"), "q": key.q.to_bytes(half, "big"), "group": key.group}
    return {
        name
        for name, raw in secrets.items()
        for order in (raw, raw[::-1])
        if any(order[start : start + 16] in carried for start in range(0, len(raw) - 15, 8))
    }


def test_a_key_of_the_coordinators_own_is_refused() -> None:
    own = PaillierKey(real_key().q, real_key().p)
    for signer in (SigningKey.draw(rng("coordinator")), SigningKey(MAKER.public)):
        forged = hand_over(own, context=CONTEXT, maker=signer, reader=READER.public, rng=rng("seal"))
        with pytest.raises(ProtocolError, match="the signature of the site that makes it"):
            taken(forged)
    unsigned = seal(READER.public, own.to_bytes(), info=CONTEXT, rng=rng("seal"))
    for payload in (unsigned, bytes(64) + unsigned, handed(real_key())[:64] + unsigned, b"", bytes(64)):
        with pytest.raises(ProtocolError, match="the signature of the site that makes it"):
            taken(payload)


def test_another_run_reader_or_byte_is_refused() -> None:
    good = handed(real_key())
    with pytest.raises(ProtocolError):
        take_over(good, context=bytes(32), maker=MAKER.public, reader=READER, bits=2048)
    with pytest.raises(ProtocolError):
        take_over(good, context=CONTEXT, maker=MAKER.public, reader=ExchangeKey.draw(rng("thief")), bits=2048)
    for place in (0, 63, 64, 95, 96, 200, len(good) - 1):
        with pytest.raises(ProtocolError):
            taken(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
    with pytest.raises(ProtocolError):
        taken(good[:-1])


def test_a_key_of_another_length_is_refused() -> None:
    with pytest.raises(ProtocolError, match="the plan's 3072 bits; got 2048"):
        taken(handed(real_key()), bits=3072)
    with pytest.raises(ProtocolError, match="2048 to 8192 bits"):
        taken(handed(PaillierKey(prime(256, rng("p")), prime(256, rng("q")))))


def test_the_limit_is_true() -> None:
    """A site that gives its key to the coordinator, or asks itself on its behalf, opens one site's update."""
    run, secret = Run.real(), np.array([3, -1, 4, -1, 5])
    single = run.cipher(2).encrypt(secret, rng("secret"))
    colluding = Opening(ROUND, 5, (1, 2, 3), (2,), 1)
    assert (
        run.key.decrypt(single, colluding, lanes=run.lanes, site=colluding.opener, answered=set()).tolist()
        == secret.tolist()
    )
    assert "Any one site together with the coordinator" in LIMIT


def test_the_coordinators_half_holds_no_key() -> None:
    run = Run.real()
    held = repr(run.sums) + str(vars(run.sums)) + str(vars(run.sums.public))
    assert str(run.key.p) not in held
    assert str(run.key.q) not in held
    assert not hasattr(run.sums, "group")
