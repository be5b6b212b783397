"""Intel SGX and TDX quotes, verified by the package dcap-qvl.

Source:
    Intel, SGX DCAP ECDSA Quote Library API, appendix A.4 (quote version 3: version at byte 0, TEE type at 4; enclave
    report: attributes, DEBUG is bit 1); Intel, TDX DCAP Quoting Library API, appendix A.3 (quote version 4, TEE type 0x81)
    and Intel TDX Module Base Specification, table on TD attributes (byte 0: the guest is under debug).
"""

import json
import struct
from types import ModuleType
from typing import NamedTuple

from consilia.core.errors import ProtocolError
from consilia.crypto.attestation.evidence import Evidence, Kind, Statement
from consilia.crypto.attestation.policy import Policy
from consilia.crypto.attestation.refusal import refuse

_HEADER = struct.Struct("<HHI")  # version, type of the attestation key, type of the environment
_COLLATERAL = {
    "pck_crl_issuer_chain", "root_ca_crl", "pck_crl", "tcb_info_issuer_chain", "tcb_info", "tcb_info_signature",
    "qe_identity_issuer_chain", "qe_identity", "qe_identity_signature",
}  # fmt: skip
_HINT = "Fetch collateral anew (it says nextUpdate), or ask for a fresh quote"


class _Form(NamedTuple):
    name: str
    version: int
    environment: int
    report: str  # dcap-qvl's name of the report
    registers: tuple[str, ...]
    attributes: str
    debug: int  # bits of the first byte of the attributes that must be clear


class _Verified(NamedTuple):
    status: str
    advisories: list[str]
    reports: dict[str, dict[str, str]]  # one, by its name: numbers of bytes in hex


_FORMS: dict[Kind, _Form] = {
    "sgx": _Form("SGX", 3, 0x00, "SgxEnclave", ("mr_enclave",), "attributes", 0x02),
    "tdx": _Form("TDX", 4, 0x81, "TD10", ("mr_td", "rt_mr0", "rt_mr1", "rt_mr2", "rt_mr3"), "td_attributes", 0xFF),
}


def authenticate(evidence: Evidence, policy: Policy, now: int) -> Statement:
    """Return what the quoting enclave signed.

    Raises:
        ProtocolError: If dcap-qvl is not installed, the quote or its collateral does not verify at `now`, or the platform's
            firmware is in a state, or has an advisory, that the policy does not accept.
    """
    form = _FORMS[evidence.kind]
    if len(evidence.body) < _HEADER.size:
        raise refuse("format", needs="a quote", got=f"{len(evidence.body)} bytes")
    version, _, environment = _HEADER.unpack_from(evidence.body)
    if (version, environment) != (form.version, form.environment):
        raise refuse("format", needs=f"a quote of {form.name}, version {form.version}",
                     got=f"version {version}, environment {environment:#x}")  # fmt: skip
    verified = _verified(evidence.body, _collateral(evidence.collateral), now)
    if verified.status not in policy.statuses:
        raise refuse("tcb", needs=f"firmware that is {' or '.join(policy.statuses)}", got=verified.status)
    unknown = sorted(set(verified.advisories) - set(policy.advisories))
    if unknown:
        raise refuse("advisory", needs="no advisory that the policy does not accept", got=", ".join(unknown))
    return _statement(form, verified)


def _statement(form: _Form, verified: _Verified) -> Statement:
    report = verified.reports.get(form.report)
    if report is None:
        raise refuse("format", needs=f"a report of {form.name}", got="another one")
    return Statement(
        measurement=":".join(report[name] for name in form.registers),
        bound=bytes.fromhex(report["report_data"]),
        tcb=", ".join([verified.status, *verified.advisories]),
        debug=bool(bytes.fromhex(report[form.attributes])[0] & form.debug),
    )


def _collateral(raw: bytes) -> str:
    try:
        table = json.loads(raw)
    except (ValueError, RecursionError):
        raise refuse("collateral", needs="JSON", got="other bytes", hint=_HINT) from None
    if not isinstance(table, dict) or set(table) != _COLLATERAL or not all(isinstance(v, str) for v in table.values()):
        raise refuse("collateral", needs=f"texts {', '.join(sorted(_COLLATERAL))}", got="others", hint=_HINT)
    return json.dumps(table)


def _verified(quote: bytes, collateral: str, now: int) -> _Verified:
    library = _library()
    try:
        parsed = library.QuoteCollateralV3.from_json(collateral)
        found = json.loads(library.verify(quote, parsed, now).to_json())
    except (ValueError, OverflowError) as error:
        # The library's reason names the certificate or the field; it holds no secret.
        raise refuse(
            "signature", needs="a quote and collateral that verify now", got=str(error)[:200], hint=_HINT
        ) from None
    except BaseException as error:
        # A panic of the library's parser, which is no Exception: bytes of a peer must not end the site.
        if type(error).__name__ != "PanicException":
            raise
        raise refuse("format", needs="a quote that can be read", got="bytes at which the parser stopped") from None
    return _Verified(found["status"], found["advisory_ids"], found["report"])


def _library() -> ModuleType:
    try:
        import dcap_qvl  # noqa: PLC0415  (an extra: only sites that accept such quotes need it)
    except ImportError:
        raise ProtocolError.of(
            "A policy for SGX or TDX", needs="the package dcap-qvl", got="none installed",
            hint="Install consilia[attest]",
        ) from None  # fmt: skip
    library: ModuleType = dcap_qvl
    return library
