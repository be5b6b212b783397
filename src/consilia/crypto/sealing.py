"""Bytes that only the holder of one key can read, and that nobody can change.

`seal` takes the reader's public key: a fresh key agrees with it, and the result opens AES-256-GCM, in the manner of
HPKE's base mode (RFC 9180, section 5.1.1) with X25519, HKDF-SHA256 and AES-256-GCM, though not in its format.
`lock` takes a key that both ends already have, made for this one text.
"""

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from consilia.core.errors import ProtocolError
from consilia.core.randomness import SecretRng
from consilia.crypto.keys import KEY_SIZE, ExchangeKey, derive

_TAG_SIZE = 16
_NONCE = bytes(12)  # every key here encrypts one text only, so there is nothing for a nonce to tell apart


def seal(public_key: bytes, plaintext: bytes, *, info: bytes, rng: SecretRng) -> bytes:
    """Encrypt for the holder of a private X25519 key: 32 bytes of a fresh public key, ciphertext, 16 bytes of tag.

    Args:
        public_key: The reader's, 32 bytes.
        plaintext: What only the reader shall see.
        info: What the message belongs to; `open_sealed` must name the same.
        rng: Secret randomness for the fresh key.

    Raises:
        ProtocolError: If the public key is none.

    Guarantees:
        Confidential, and unchanged where it opens; it does not say who sealed it.
    """
    fresh = ExchangeKey.draw(rng)
    key = _key(fresh.agree(public_key, who="the key to seal to"), fresh.public, public_key, info)
    return fresh.public + lock(key, plaintext)


def open_sealed(private: ExchangeKey, sealed: bytes, *, info: bytes, who: str) -> bytes:
    """Return what was sealed.

    Args:
        private: The reader's key.
        sealed: What `seal` returned.
        info: What the message belongs to.
        who: The sealed text's name in errors.

    Raises:
        ProtocolError: If it was sealed to another key, for another `info`, or changed.
    """
    if len(sealed) < KEY_SIZE + _TAG_SIZE:
        raise _refused(who, f"{len(sealed)} bytes")
    fresh = bytes(sealed[:KEY_SIZE])
    return unlock(_key(private.agree(fresh, who=who), fresh, private.public, info), sealed[KEY_SIZE:], who=who)


def lock(key: bytes, plaintext: bytes, associated: bytes = b"") -> bytes:
    """Encrypt with a key of 32 bytes that is used for this one text and no other."""
    return AESGCM(key).encrypt(_NONCE, plaintext, associated)


def unlock(key: bytes, locked: bytes, associated: bytes = b"", *, who: str) -> bytes:
    """Return what `lock` encrypted.

    Raises:
        ProtocolError: If key, text or associated bytes are not the same.
    """
    try:
        return AESGCM(key).decrypt(_NONCE, locked, associated)
    except (InvalidTag, ValueError):
        raise _refused(who, f"{len(locked)} bytes that do not open") from None


def _key(agreed: bytes, fresh: bytes, reader: bytes, info: bytes) -> bytes:
    return derive(agreed, info=b"consilia seal" + fresh + reader + info)


def _refused(who: str, got: str) -> ProtocolError:
    return ProtocolError.of(who, needs="bytes sealed to this key and for this purpose", got=got,
                            hint="They were sealed for another session, to another key, or changed on the way")  # fmt: skip
