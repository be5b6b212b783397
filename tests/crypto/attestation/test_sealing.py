import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from tests.crypto.attestation.makers import p256, point

from consilia.core.errors import ProtocolError
from consilia.core.randomness import SecretRng
from consilia.crypto import sealing
from consilia.crypto.attestation import Claims
from consilia.crypto.attestation.sealing import open_p256, seal_to
from consilia.crypto.keys import ExchangeKey

RNG = SecretRng(b"s" * 32)
READER = p256(77)


def claims(key: bytes) -> Claims:
    return Claims("tpm", "sha256:14=ab", key, "", debug=False, issued=0, expires=10)


def agree(reader: ec.EllipticCurvePrivateKey, peer: bytes) -> bytes:
    return reader.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), peer))


def opened(sealed: bytes, *, info: bytes = b"info", reader: ec.EllipticCurvePrivateKey = READER) -> bytes:
    return open_p256(lambda peer: agree(reader, peer), point(reader), sealed, info=info, who="it")


def test_a_p256_key_opens_what_was_sealed_to_it() -> None:
    sealed = seal_to(claims(point(READER)), b"update", info=b"info", rng=RNG, now=5)
    assert opened(sealed) == b"update"
    assert len(sealed) == 65 + 6 + 16
    assert seal_to(claims(point(READER)), b"update", info=b"info", rng=RNG, now=5)[:65] != sealed[:65]


def test_an_x25519_key_takes_the_form_that_sites_use_among_themselves() -> None:
    key = ExchangeKey.draw(RNG)
    sealed = seal_to(claims(key.public), b"update", info=b"info", rng=RNG, now=5)
    assert sealing.open_sealed(key, sealed, info=b"info", who="it") == b"update"


def test_another_reader_purpose_or_text_does_not_open() -> None:
    sealed = seal_to(claims(point(READER)), b"update", info=b"info", rng=RNG, now=5)
    with pytest.raises(ProtocolError, match="it needs"):
        opened(sealed, info=b"other")
    with pytest.raises(ProtocolError, match="it needs"):
        opened(sealed, reader=p256(78))
    for at in range(len(sealed)):
        with pytest.raises(ProtocolError, match="it needs"):
            opened(sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :])
    for size in range(len(sealed)):
        with pytest.raises(ProtocolError, match="it needs"):
            opened(sealed[:size])


def test_nothing_is_sealed_to_old_claims_or_to_no_key() -> None:
    for now in (-1, 11):
        with pytest.raises(ProtocolError, match="Attestation, age"):
            seal_to(claims(point(READER)), b"update", info=b"info", rng=RNG, now=now)
    for key in (b"\x04" + bytes(64), bytes(65), b"", bytes(32)):
        with pytest.raises(ProtocolError, match="needs"):
            seal_to(claims(key), b"update", info=b"info", rng=RNG, now=5)


def test_a_point_that_is_none_never_reaches_the_key() -> None:
    def never(peer: bytes) -> bytes:
        raise AssertionError(peer)

    whole = point(p256(5))
    compressed = bytes([2 + whole[-1] % 2]) + whole[1:33]
    hybrid = bytes([6 + whole[-1] % 2]) + whole[1:]
    for bad in (bytes(85), compressed, compressed + bytes(52), hybrid + bytes(20), b"\x04" + b"\x01" * 84):
        with pytest.raises(ProtocolError, match="it needs bytes sealed to a P-256 key"):
            open_p256(never, point(READER), bad, info=b"", who="it")
