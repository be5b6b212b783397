"""Enrolment of a TPM: does the attestation key live in the TPM whose endorsement key its maker certified?

A steward asks once, before pinning the attestation key in a policy. Only the TPM that holds both keys returns the secret.

Source:
    Trusted Computing Group, TPM 2.0 Library Specification, revision 1.59: Part 1, sections 11.4.10 (KDFa, KDFe), 24
    (credential protection) and annex C.6 (ECC); TCG EK Credential Profile for TPM Family 2.0, revision 2.5, annex B.3.4
    (template L-2, ECC NIST P-256).
"""

import hashlib
import hmac
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from consilia.core.randomness import SecretRng
from consilia.crypto.attestation.refusal import Reader, refuse
from consilia.crypto.attestation.sealing import draw_p256
from consilia.crypto.attestation.tpm_format import COORDINATE, public_area

# Everything of the template but the point: ECC, SHA-256, fixedTPM | fixedParent | sensitiveDataOrigin | adminWithPolicy |
# restricted | decrypt, PolicySecret(endorsement hierarchy), AES-128-CFB, no scheme, P-256, no derivation.
ENDORSEMENT_HEAD: Final = bytes.fromhex(
    "0023000b000300b20020837197674484b3f81a90cc8d46a5d724fd52d76e06520b64f2a1da1b331469aa000600800043001000030010"
)
_BLOCK = 16
_LONGEST_SECRET = 32


def endorsement_key(endorsement: bytes) -> bytes:
    """Return the point (65 bytes) of an endorsement key's public area: compare it with the maker's certificate.

    Raises:
        ProtocolError: If the area is not that of the standard's template for P-256.
    """
    reader = Reader(endorsement, "endorsement key")
    if reader.take(len(ENDORSEMENT_HEAD)) != ENDORSEMENT_HEAD:
        raise refuse("endorsement key", needs="the standard's template for P-256 (L-2)", got="another key")
    x, y = (reader.sized(width=2, limit=COORDINATE).rjust(COORDINATE, b"\0") for _ in range(2))
    reader.finish()
    return b"\x04" + x + y


def challenge(endorsement: bytes, signer: bytes, secret: bytes, *, rng: SecretRng) -> bytes:
    """Encrypt a secret so that only a TPM with both keys returns it (TPM2_MakeCredential).

    Args:
        endorsement: Public area of the endorsement key; its point must be the one that the TPM's maker certified.
        signer: Public area of the attestation key.
        secret: 1 to 32 bytes; the answer must be the same.
        rng: Secret randomness for a fresh key.

    Returns:
        The parameters of TPM2_ActivateCredential.

    Raises:
        ProtocolError: If a key is malformed.
    """
    if not 1 <= len(secret) <= _LONGEST_SECRET:
        raise refuse("challenge", needs=f"a secret of 1 to {_LONGEST_SECRET} bytes", got=len(secret))
    name = public_area(signer, "attestation key").name
    reader = endorsement_key(endorsement)
    fresh = draw_p256(rng)
    point = fresh.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    try:
        agreed = fresh.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), reader))
    except ValueError:
        raise refuse("endorsement key", needs="a point of the curve P-256", got="another one") from None
    x, y = point[1 : 1 + COORDINATE], point[1 + COORDINATE :]
    one = (1).to_bytes(4, "big")
    seed = hashlib.sha256(one + agreed + b"IDENTITY\0" + x + reader[1 : 1 + COORDINATE]).digest()
    hidden = _cfb(_kdfa(seed, b"STORAGE", name, 128), _sized(secret))
    proof = hmac.digest(_kdfa(seed, b"INTEGRITY", b"", 256), hidden + name, "sha256")
    return _sized(_sized(proof) + hidden) + _sized(_sized(x) + _sized(y))


def _kdfa(key: bytes, label: bytes, context: bytes, bits: int) -> bytes:
    """Derive at most 256 bits: one step of the counter."""
    message = (1).to_bytes(4, "big") + label + b"\0" + context + bits.to_bytes(4, "big")
    return hmac.digest(key, message, "sha256")[: bits // 8]


def _cfb(key: bytes, plain: bytes) -> bytes:
    """Encrypt with AES in CFB mode from a vector of zeros; one text per key."""
    block = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305  (CFB is made of it)
    out, previous = b"", bytes(_BLOCK)
    for at in range(0, len(plain), _BLOCK):
        part = plain[at : at + _BLOCK]
        previous = bytes(a ^ b for a, b in zip(part, block.update(previous), strict=False))
        out += previous
    return out


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(2, "big") + data
