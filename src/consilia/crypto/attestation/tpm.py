"""TPM 2.0: a quote of the measured code, and a key that the TPM opens only while that code's measurement stands.

Source: see `tpm_format`; Part 3, sections 18.2 (Certify) and 18.4 (Quote).
"""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from consilia.crypto.attestation import tpm_format as form
from consilia.crypto.attestation.evidence import Evidence, Statement
from consilia.crypto.attestation.policy import Policy
from consilia.crypto.attestation.refusal import Reader, refuse

_PARTS = 6
_MAX_PART = 1024
_SIGNER = form.FIXED_TPM | form.FIXED_PARENT | form.SENSITIVE_ORIGIN | form.RESTRICTED | form.SIGN
_OPENER = form.FIXED_TPM | form.FIXED_PARENT | form.SENSITIVE_ORIGIN | form.DECRYPT
# What an owner may choose freely: whether wrong passwords lock the key, and whether a password works for a signing key.
_SIGNER_FREE = form.NO_DA | form.USER_WITH_AUTH


def body(
    quote: bytes, quote_signature: bytes, certify: bytes, certify_signature: bytes, signer: bytes, opener: bytes
) -> bytes:
    """Encode the body of the evidence: two statements with their signatures and two public areas, each after its length."""
    parts = (quote, quote_signature, certify, certify_signature, signer, opener)
    return b"".join(len(part).to_bytes(2, "big") + part for part in parts)


def authenticate(evidence: Evidence, policy: Policy, now: int) -> Statement:
    """Return what the TPM signed. A TPM tells no time of the day: `now` is not used.

    Raises:
        ProtocolError: If the attestation key is not pinned or could sign what the TPM did not make, a signature does not
            match, the two statements do not belong together, or the key could be used, copied or imported in another way.

    Guarantees:
        The private half of the key was made in this TPM, cannot leave it, and does nothing unless the registers have the
        digest that is in the measurement.
    """
    reader = Reader(evidence.body, "format")
    quote, quote_sig, certify, certify_sig, signer, opener = (
        reader.sized(width=2, limit=_MAX_PART) for _ in range(_PARTS)
    )
    reader.finish()
    ak = form.public_area(signer, "attestation key")
    if ak.fingerprint not in policy.roots:
        raise refuse("root", needs="an attestation key that the policy pins", got=ak.fingerprint)
    if ak.attributes & ~_SIGNER_FREE != _SIGNER or ak.scheme != form.ALG_ECDSA:
        raise refuse("attestation key", needs="a restricted signing key that was made in the TPM and stays in it",
                     got=f"attributes {ak.attributes:#x}")  # fmt: skip
    _check_signature(ak, quote, quote_sig, "quote")
    _check_signature(ak, certify, certify_sig, "certificate of the key")
    quoted = form.attest(quote, form.ST_QUOTE, "quote")
    certified = form.attest(certify, form.ST_CERTIFY, "certificate of the key")
    if (quoted.resets, quoted.restarts, quoted.firmware, quoted.extra, quoted.signer) != (
        certified.resets, certified.restarts, certified.firmware, certified.extra, certified.signer,
    ):  # fmt: skip
        raise refuse("quote", needs="quote and certificate of one start of one TPM, for one nonce", got="two")
    registers, digest = _quoted(quoted.rest)
    _check_opener(evidence.key, form.public_area(opener, "key"), certified.rest, form.policy_pcr(registers, digest))
    return Statement(
        measurement=f"sha256:{','.join(map(str, registers))}={digest.hex()}",
        bound=quoted.extra,
        tcb=f"firmware {quoted.firmware:016x}, started {quoted.resets} times"
        + ("" if quoted.safe else ", clock set back"),
        debug=False,
    )


def _quoted(rest: Reader) -> tuple[tuple[int, ...], bytes]:
    """Return the registers and the digest of a TPMS_QUOTE_INFO."""
    head = rest.take(10)
    bits = int.from_bytes(head[7:], "little")
    registers = tuple(register for register in range(24) if bits >> register & 1)
    if head != form.selection(registers) or not registers:
        raise refuse("quote", needs="registers of the SHA-256 bank", got="another selection")
    digest = rest.sized(width=2, limit=32)
    rest.finish()
    if len(digest) != 32:
        raise refuse("quote", needs="a SHA-256 of the registers", got=f"{len(digest)} bytes")
    return registers, digest


def _check_opener(key: bytes, opener: form.PublicArea, certified: Reader, policy: bytes) -> None:
    name = certified.sized(width=2, limit=34)
    certified.sized(width=2, limit=34)  # the qualified name: where in the TPM's tree the key hangs
    certified.finish()
    if name != opener.name:
        raise refuse("key", needs="the key that the TPM certified", got="another one")
    if opener.point != key:
        raise refuse("key", needs="the key beside the evidence to be the key in it", got="another one")
    if opener.attributes & ~form.NO_DA != _OPENER or opener.scheme not in (form.ALG_NULL, form.ALG_ECDH):
        raise refuse("key", needs="a decryption key that was made in the TPM, stays in it, and opens by its policy alone",
                     got=f"attributes {opener.attributes:#x}")  # fmt: skip
    if opener.policy != policy:
        raise refuse("key policy", needs="a key that works only while the quoted registers stand", got="another policy")


def _check_signature(ak: form.PublicArea, statement: bytes, raw: bytes, clause: str) -> None:
    r, s = form.signature(raw, clause)
    try:
        key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), ak.point)
        key.verify(encode_dss_signature(r, s), statement, ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError):
        raise refuse("signature", needs=f"the attestation key's signature of the {clause}",
                     got="one that does not match") from None  # fmt: skip
