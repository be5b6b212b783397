"""AWS Nitro Enclaves attestation documents: COSE_Sign1, ES384, a chain of certificates inside.

Source:
    AWS, Nitro Enclaves NSM API, docs/attestation_process.md, sections 2 and 3 (fields and their limits, steps of a
    validation; PCR0 to PCR2 are zero in debug mode: AWS Nitro Enclaves User Guide, "Cryptographic attestation");
    RFC 9052, section 4.4 (what COSE_Sign1 signs); RFC 9053, section 2.1 (ES384 is algorithm -35; r and s, 48 bytes each).
"""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from consilia.crypto.attestation import cbor
from consilia.crypto.attestation.certificate import Certificate, check_chain, parse
from consilia.crypto.attestation.evidence import Evidence, Statement
from consilia.crypto.attestation.policy import REGISTERS, Policy
from consilia.crypto.attestation.refusal import refuse

_TAG = b"\xd2"  # COSE_Sign1 is tag 18; both with and without it are in use
_SIGN1 = b"\x84\x6aSignature1"  # an array of four that begins with this text
_ALGORITHM = {1: -35}
_HALF = 48
_MAX_CERTIFICATE, _MAX_CHAIN = 1024, 7
_FIELDS = {"module_id", "digest", "timestamp", "pcrs", "certificate", "cabundle", "public_key", "user_data", "nonce"}
_NAMES, _PCR_BYTES = REGISTERS["nitro"]


def authenticate(evidence: Evidence, policy: Policy, now: int) -> Statement:
    """Return what the Nitro hypervisor signed.

    Raises:
        ProtocolError: If the document is malformed, a signature does not match, or its root is not pinned.
    """
    protected, payload, signature = _envelope(evidence.body)
    document = cbor.decode(payload)
    if not isinstance(document, dict) or set(document) != _FIELDS:
        raise refuse("format", needs=f"a document of {', '.join(sorted(_FIELDS))}", got="other fields")
    leaf, chain = _certificates(document)
    _check_signature(protected, payload, signature, leaf)
    check_chain([leaf, *chain], policy.roots, now)
    if document["digest"] != "SHA384":
        raise refuse("format", needs="registers hashed with SHA384", got="another hash")
    timestamp = document["timestamp"]  # milliseconds
    if not isinstance(timestamp, int) or isinstance(timestamp, bool) or timestamp < 0:
        raise refuse("format", needs="a timestamp", got="none")
    registers = _registers(document["pcrs"])
    return Statement(
        measurement=":".join(register.hex() for register in registers),
        bound=_optional(document, "user_data", 512),
        tcb="not stated",
        debug=not all(map(any, registers)),
        issued=timestamp // 1000,
        nonce=_optional(document, "nonce", 512),
        key=_optional(document, "public_key", 1024),
    )


def _envelope(body: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the protected header, the payload and the signature of a COSE_Sign1."""
    envelope = cbor.decode(body.removeprefix(_TAG))
    if not isinstance(envelope, list) or len(envelope) != 4:
        raise refuse("format", needs="a COSE_Sign1 of four parts", got="another structure")
    protected, unprotected, payload, signature = envelope
    if not (isinstance(protected, bytes) and isinstance(payload, bytes) and isinstance(signature, bytes)):
        raise refuse("format", needs="byte strings in COSE_Sign1", got="other types")
    if cbor.decode(protected) != _ALGORITHM or unprotected != {}:
        raise refuse("signature", needs="ES384 as the only header", got="other headers")
    if len(signature) != 2 * _HALF:
        raise refuse("signature", needs=f"{2 * _HALF} bytes", got=len(signature))
    return protected, payload, signature


def _certificates(document: dict[int | str, cbor.Value]) -> tuple[Certificate, list[Certificate]]:
    bundle = document["cabundle"]
    if not isinstance(bundle, list) or not 1 <= len(bundle) <= _MAX_CHAIN:
        raise refuse("chain", needs=f"a bundle of 1 to {_MAX_CHAIN} certificates", got="another one")
    found = []
    for raw in [document["certificate"], *reversed(bundle)]:  # the bundle begins with the root
        if not isinstance(raw, bytes) or len(raw) > _MAX_CERTIFICATE:
            raise refuse("chain", needs=f"certificates of at most {_MAX_CERTIFICATE} bytes", got="another one")
        found.append(parse(raw))
    return found[0], found[1:]


def _check_signature(protected: bytes, payload: bytes, signature: bytes, leaf: Certificate) -> None:
    if not isinstance(leaf.key, ec.EllipticCurvePublicKey) or not isinstance(leaf.key.curve, ec.SECP384R1):
        raise refuse("signature", needs="a key on P-384", got="another key")
    signed = _SIGN1 + cbor.byte_string(protected) + cbor.byte_string(b"") + cbor.byte_string(payload)
    r, s = int.from_bytes(signature[:_HALF], "big"), int.from_bytes(signature[_HALF:], "big")
    try:
        leaf.key.verify(encode_dss_signature(r, s), signed, ec.ECDSA(hashes.SHA384()))
    except (InvalidSignature, ValueError):
        raise refuse("signature", needs="the hypervisor's signature", got="one that does not match") from None


def _registers(pcrs: cbor.Value) -> list[bytes]:
    found = [pcrs.get(index) for index in range(len(_NAMES))] if isinstance(pcrs, dict) else []
    registers = [value for value in found if isinstance(value, bytes) and len(value) == _PCR_BYTES]
    if len(registers) != len(_NAMES):
        raise refuse("format", needs=f"{', '.join(_NAMES)} of {_PCR_BYTES} bytes", got="others")
    return registers


def _optional(document: dict[int | str, cbor.Value], name: str, limit: int) -> bytes:
    value = document[name]
    if value is None:
        return b""
    if not isinstance(value, bytes) or len(value) > limit:
        raise refuse("format", needs=f"{name} of at most {limit} bytes", got="another value")
    return value
