"""Evidence of our own making, under roots of our own: what hardware would sign if we could ask it."""

import datetime
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from consilia.crypto.attestation import Evidence, Policy, binding, tpm
from consilia.crypto.attestation import tpm_format as form

NOW = 1_800_000_000
KEY = bytes(range(32))
CONTEXT, NONCE = b"c" * 32, b"n" * 32
SIGN = {"nitro": hashes.SHA384(), "sev-snp": hashes.SHA384(), "tpm": hashes.SHA256()}


def p384(number: int) -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(number, ec.SECP384R1())


def p256(number: int) -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(number, ec.SECP256R1())


def point(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def raw_signature(key: ec.EllipticCurvePrivateKey, data: bytes, algorithm: hashes.HashAlgorithm) -> tuple[int, int]:
    return decode_dss_signature(key.sign(data, ec.ECDSA(algorithm)))


def certificate(
    name: str, key: Any, issuer: str, issuer_key: Any, *, depth: int | str | None = "leaf", signs: bool = True,
    since: int = NOW - 1000, until: int = NOW + 1000, extra: tuple[tuple[str, bytes, bool], ...] = (),
    algorithm: Any = None, padding: Any = None, authority: bool = True,
) -> bytes:  # fmt: skip
    """Return a DER certificate; `depth`: "leaf" for none, else the path length of an authority (None: any)."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(datetime.datetime.fromtimestamp(since, datetime.UTC))
        .not_valid_after(datetime.datetime.fromtimestamp(until, datetime.UTC))
    )
    if not isinstance(depth, str):
        builder = builder.add_extension(
            x509.BasicConstraints(ca=authority, path_length=depth if authority else None), critical=True
        )
        usage = dict.fromkeys(("digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
                               "key_agreement", "encipher_only", "decipher_only"), False)  # fmt: skip
        builder = builder.add_extension(x509.KeyUsage(key_cert_sign=signs, crl_sign=True, **usage), critical=True)
    for oid, value, critical in extra:
        builder = builder.add_extension(
            x509.UnrecognizedExtension(x509.ObjectIdentifier(oid), value), critical=critical
        )
    options = {"rsa_padding": padding} if padding else {}
    return builder.sign(issuer_key, algorithm or hashes.SHA384(), **options).public_bytes(Encoding.DER)


ROOT, MIDDLE, LEAF = p384(11), p384(12), p384(13)


@cache
def chain(extra: tuple[tuple[str, bytes, bool], ...] = ()) -> tuple[bytes, bytes, bytes]:
    """Return leaf, middle and root."""
    above = chain()[1:] if extra else (
        certificate("middle", MIDDLE, "root", ROOT, depth=0), certificate("root", ROOT, "root", ROOT, depth=None),
    )  # fmt: skip
    return certificate("leaf", LEAF, "middle", MIDDLE, extra=extra), *above


def fingerprint(der: bytes) -> str:
    return hashlib.sha256(der).hexdigest()


def cbor(value: Any) -> bytes:
    """Encode as CBOR; an independent few lines, so that the decoder is not tested against itself."""
    if value is None or isinstance(value, bool):
        return {None: b"\xf6", True: b"\xf5", False: b"\xf4"}[value]
    if isinstance(value, int):
        return _head(0, value) if value >= 0 else _head(1, -1 - value)
    if isinstance(value, bytes):
        return _head(2, len(value)) + value
    if isinstance(value, str):
        return _head(3, len(value.encode())) + value.encode()
    if isinstance(value, list):
        return _head(4, len(value)) + b"".join(map(cbor, value))
    return _head(5, len(value)) + b"".join(cbor(key) + cbor(item) for key, item in value.items())


def _head(major: int, size: int) -> bytes:
    if size < 24:
        return bytes([major << 5 | size])
    code = 24 + next(i for i in range(4) if size < 1 << (8 << i))
    return bytes([major << 5 | code]) + size.to_bytes(1 << (code - 24), "big")


@dataclass
class Nitro:
    registers: dict[int, bytes] = field(default_factory=lambda: {i: bytes([i + 1]) * 48 for i in range(16)})
    changes: dict[str, Any] = field(default_factory=dict)
    protected: dict[int, Any] = field(default_factory=lambda: {1: -35})
    unprotected: dict[int, Any] = field(default_factory=dict)
    key: bytes = KEY
    context: bytes = CONTEXT
    nonce: bytes = NONCE
    tag: bytes = b""
    endless: bool = False  # the document as a map of indefinite length
    envelope: dict[int, Any] = field(default_factory=dict)  # part of COSE_Sign1 -> what stands there instead

    def document(self) -> dict[str, Any]:
        leaf, middle, root = chain()
        return {
            "module_id": "i-1", "digest": "SHA384", "timestamp": NOW * 1000, "pcrs": self.registers, "certificate": leaf,
            "cabundle": [root, middle], "public_key": self.key,
            "user_data": binding(self.context, self.nonce, self.key), "nonce": self.nonce, **self.changes,
        }  # fmt: skip

    def evidence(self) -> Evidence:
        protected, payload = cbor(self.protected), cbor(self.document())
        if self.endless:
            payload = b"\xbf" + payload[1:] + b"\xff"
        r, s = raw_signature(LEAF, cbor(["Signature1", protected, b"", payload]), hashes.SHA384())
        signature = r.to_bytes(48, "big") + s.to_bytes(48, "big")
        parts = [protected, self.unprotected, payload, signature]
        return Evidence(
            "nitro", self.tag + cbor([self.envelope.get(i, part) for i, part in enumerate(parts)]), self.key
        )

    def policy(self, **changes: Any) -> Policy:
        measurement = ":".join((bytes([i + 1]) * 48).hex() for i in range(3))
        return Policy.of({"kind": "nitro", "measurements": [measurement], "max_age": 100, "roots": [fingerprint(chain()[2])],
                          **changes})  # fmt: skip


AMD = "1.3.6.1.4.1.3704.1."


@dataclass
class Snp:
    fields: dict[int, bytes] = field(default_factory=dict)  # offset -> bytes, over the defaults
    after: dict[int, bytes] = field(default_factory=dict)  # the same, after signing
    versions: tuple[int, int, int, int] = (3, 0, 8, 115)
    certified: tuple[int, ...] = (3, 0, 8, 115)
    key: bytes = KEY
    context: bytes = CONTEXT
    nonce: bytes = NONCE

    def evidence(self) -> Evidence:
        report = bytearray(0x4A0)
        boot, tee, snp, microcode = self.versions
        defaults = {
            0x000: (2).to_bytes(4, "little"), 0x008: (0x30000).to_bytes(8, "little"), 0x034: b"\x01", 0x90: b"\xab" * 48,
            0x050: binding(self.context, self.nonce, self.key), 0x180: bytes([boot, tee, 0, 0, 0, 0, snp, microcode]),
            0x1A0: b"\xcd" * 64,
        }  # fmt: skip
        _write(report, {**defaults, **self.fields})
        r, s = raw_signature(LEAF, bytes(report[:0x2A0]), hashes.SHA384())
        _write(report, {0x2A0: r.to_bytes(72, "little"), 0x2E8: s.to_bytes(72, "little"), **self.after})
        return Evidence("sev-snp", bytes(report), self.key, b"".join(chain(self.extensions())))

    def extensions(self) -> tuple[tuple[str, bytes, bool], ...]:
        names = zip(("3.1", "3.2", "3.3", "3.8"), self.certified, strict=False)
        return ((AMD + "4", b"\xcd" * 64, False),
                *((AMD + name, b"\x02\x01" + bytes([value]), False) for name, value in names))  # fmt: skip

    def policy(self, **changes: Any) -> Policy:
        tcb = {"bootloader": 3, "tee": 0, "snp": 8, "microcode": 115}
        return Policy.of({"kind": "sev-snp", "measurements": ["ab" * 48], "max_age": 100, "minimum_tcb": tcb,
                          "roots": [fingerprint(chain()[2])], **changes})  # fmt: skip


def _write(report: bytearray, fields: dict[int, bytes]) -> None:
    for at, value in fields.items():
        report[at : at + len(value)] = value


SIGNER, OPENER = p256(21), p256(22)
SIGNER_ATTRIBUTES = form.FIXED_TPM | form.FIXED_PARENT | form.SENSITIVE_ORIGIN | form.RESTRICTED | form.SIGN
OPENER_ATTRIBUTES = form.FIXED_TPM | form.FIXED_PARENT | form.SENSITIVE_ORIGIN | form.DECRYPT
DIGEST = b"\x5a" * 32


def area(key: ec.EllipticCurvePrivateKey, attributes: int, policy: bytes, scheme: bytes) -> bytes:
    xy = point(key)
    return b"".join((
        b"\x00\x23\x00\x0b", attributes.to_bytes(4, "big"), _sized(policy), b"\x00\x10", scheme, b"\x00\x03\x00\x10",
        _sized(xy[1:33]), _sized(xy[33:]),
    ))  # fmt: skip


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(2, "big") + data


@dataclass
class Tpm:
    signer_attributes: int = SIGNER_ATTRIBUTES
    opener_attributes: int = OPENER_ATTRIBUTES
    signer_scheme: bytes = b"\x00\x18\x00\x0b"
    opener_scheme: bytes = b"\x00\x10"
    registers: tuple[int, ...] = (14,)
    key_policy: bytes | None = None
    certified: bytes | None = None  # the name in the certificate of the key
    quote_resets: int = 1
    safe: bytes = b"\x01"
    magic: bytes = b"\xffTCG"
    quote_type: bytes = b"\x80\x18"
    selection: bytes | None = None
    digest: bytes = DIGEST
    signature_head: bytes = b"\x00\x18\x00\x0b"
    key: bytes = field(default_factory=lambda: point(OPENER))
    context: bytes = CONTEXT
    nonce: bytes = NONCE

    def parts(self) -> tuple[bytes, bytes, bytes, bytes, bytes, bytes]:
        signer = area(SIGNER, self.signer_attributes, b"", self.signer_scheme)
        policy = form.policy_pcr(self.registers, self.digest) if self.key_policy is None else self.key_policy
        opener = area(OPENER, self.opener_attributes, policy, self.opener_scheme)
        extra = _sized(binding(self.context, self.nonce, self.key))
        signed_by = _sized(b"\x00\x0b" + b"q" * 32)
        selection = form.selection(self.registers) if self.selection is None else self.selection
        clock = bytes(8) + self.quote_resets.to_bytes(4, "big") + bytes(4) + self.safe + bytes(8)
        quote = self.magic + self.quote_type + signed_by + extra + clock + selection + _sized(self.digest)
        name = b"\x00\x0b" + hashlib.sha256(opener).digest() if self.certified is None else self.certified
        clock = bytes(8) + b"\0\0\0\x01" + bytes(4) + b"\x01" + bytes(8)
        certify = b"\xffTCG\x80\x17" + signed_by + extra + clock + _sized(name) + _sized(b"\x00\x0b" + b"q" * 32)
        return quote, self.sign(quote), certify, self.sign(certify), signer, opener

    def sign(self, data: bytes) -> bytes:
        r, s = raw_signature(SIGNER, data, hashes.SHA256())
        return self.signature_head + _sized(r.to_bytes(32, "big")) + _sized(s.to_bytes(32, "big"))

    def evidence(self) -> Evidence:
        return Evidence("tpm", tpm.body(*self.parts()), self.key)

    def policy(self, **changes: Any) -> Policy:
        pinned = fingerprint(area(SIGNER, self.signer_attributes, b"", self.signer_scheme))
        return Policy.of({"kind": "tpm", "measurements": [f"sha256:14={DIGEST.hex()}"], "max_age": 100, "roots": [pinned],
                          **changes})  # fmt: skip


@dataclass
class Quote:
    """A quote of SGX or TDX whose signatures are taken as verified: Intel alone could make them."""

    kind: Any = "sgx"
    changes: dict[str, str] = field(default_factory=dict)
    status: str = "UpToDate"
    advisories: tuple[str, ...] = ()
    head: bytes | None = None
    collateral: dict[str, Any] = field(default_factory=dict)
    reports: dict[str, Any] | None = None
    key: bytes = KEY
    context: bytes = CONTEXT
    nonce: bytes = NONCE

    def evidence(self) -> Evidence:
        genuine = b"\x03\0\x02\0" + bytes(4) if self.kind == "sgx" else b"\x04\0\x02\0\x81\0\0\0"
        head = genuine if self.head is None else self.head
        names = ("pck_crl_issuer_chain", "root_ca_crl", "pck_crl", "tcb_info_issuer_chain", "tcb_info", "tcb_info_signature",
                 "qe_identity_issuer_chain", "qe_identity", "qe_identity_signature")  # fmt: skip
        return Evidence(self.kind, head, self.key, json.dumps({**dict.fromkeys(names, ""), **self.collateral}).encode())

    def stand_in(self) -> Any:
        data = {"report_data": (binding(self.context, self.nonce, self.key) + bytes(32)).hex(), **self.changes}
        if self.kind == "sgx":
            report = {"SgxEnclave": {"mr_enclave": "ab" * 32, "attributes": "05" + "00" * 15, **data}}
        else:
            registers = dict.fromkeys(("mr_td", "rt_mr0", "rt_mr1", "rt_mr2", "rt_mr3"), "ab" * 48)
            report = {"TD10": {**registers, "td_attributes": "0000001000000000", **data}}
        found = {
            "status": self.status,
            "advisory_ids": list(self.advisories),
            "report": report if self.reports is None else self.reports,
        }
        verified = SimpleNamespace(to_json=lambda: json.dumps(found))
        collateral = SimpleNamespace(from_json=lambda text: text)
        return SimpleNamespace(QuoteCollateralV3=collateral, verify=lambda *_: verified)

    def policy(self, **changes: Any) -> Policy:
        measurement = "ab" * 32 if self.kind == "sgx" else ":".join(["ab" * 48] * 5)
        return Policy.of({"kind": self.kind, "measurements": [measurement], "max_age": 100, **changes})


Maker = Nitro | Snp | Tpm | Quote
MAKERS: dict[str, Callable[..., Maker]] = {
    "sgx": Quote, "tdx": lambda **changes: Quote("tdx", **changes), "nitro": Nitro, "sev-snp": Snp, "tpm": Tpm,
}  # fmt: skip
