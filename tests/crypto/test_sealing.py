"""Sealed bytes open with one key, for one purpose, unchanged."""

import pytest

from consilia.core.errors import PlanError, ProtocolError
from consilia.core.randomness import SecretRng
from consilia.crypto.keys import ExchangeKey
from consilia.crypto.sealing import lock, open_sealed, seal, unlock
from consilia.crypto.signing import SigningKey, verify

RNG = SecretRng(b"k" * 32)
READER = ExchangeKey.draw(RNG)


def test_the_reader_opens_what_was_sealed_and_nobody_else() -> None:
    sealed = seal(READER.public, b"a share", info=b"round 3", rng=RNG)
    assert open_sealed(READER, sealed, info=b"round 3", who="it") == b"a share"
    assert b"a share" not in sealed
    for key, text, info in ((ExchangeKey.draw(RNG), sealed, b"round 3"), (READER, sealed, b"round 4")):
        with pytest.raises(ProtocolError, match="it needs bytes sealed to this key"):
            open_sealed(key, text, info=info, who="it")


def test_every_changed_or_missing_byte_is_refused() -> None:
    sealed = seal(READER.public, b"x", info=b"", rng=RNG)
    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        for text in (bytes(changed), sealed[:place]):
            with pytest.raises(ProtocolError):
                open_sealed(READER, text, info=b"", who="it")


def test_the_same_text_never_looks_the_same() -> None:
    assert len({seal(READER.public, b"x", info=b"", rng=RNG) for _ in range(10)}) == 10


def test_a_lock_binds_its_associated_bytes() -> None:
    key = RNG.token(32)
    assert unlock(key, lock(key, b"x", b"to"), b"to", who="it") == b"x"
    with pytest.raises(ProtocolError, match="do not open"):
        unlock(key, lock(key, b"x", b"to"), b"from", who="it")


def test_points_that_make_the_secret_known_to_all_are_refused() -> None:
    for point in (bytes(32), (1).to_bytes(32, "little"), b"short"):
        with pytest.raises(ProtocolError, match="full order"):
            READER.agree(point, who="peer")


def test_keys_never_show_themselves() -> None:
    signer = SigningKey.draw(RNG)
    for key, secret in ((READER, READER.private), (signer, signer.seed)):
        _ = key.public  # also once it is cached
        assert secret.hex() not in f"{key!r}{key}"
        assert repr(secret) not in f"{key!r}{key}"


def test_a_signature_is_for_one_key_and_one_message() -> None:
    key = SigningKey.draw(RNG)
    signature = key.sign(b"m")
    assert verify(key.public, signature, b"m")
    assert not verify(key.public, signature, b"n")
    assert not verify(SigningKey.draw(RNG).public, signature, b"m")
    assert not verify(b"no key", signature, b"m")
    assert not verify(key.public, b"no signature", b"m")


@pytest.mark.parametrize("wrong", [b"", bytes(31), "x" * 32, None, 0])
def test_what_is_no_private_key(wrong: object) -> None:
    for make in (ExchangeKey, SigningKey):
        with pytest.raises(PlanError, match="32 bytes"):
            make(wrong)  # type: ignore[arg-type]
