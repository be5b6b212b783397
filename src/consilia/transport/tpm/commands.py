"""The few TPM 2.0 commands an aggregator needs.

Source:
    Trusted Computing Group, TPM 2.0 Library Specification, revision 1.59: Part 2, sections 6.5.2 (command codes), 7.4
    (permanent handles) and 12.2 (TPMT_PUBLIC); Part 3, sections 11.1 (StartAuthSession), 12.1, 12.2 and 12.5 (Create, Load,
    ActivateCredential), 14.5 (ECDH_ZGen), 18.2 and 18.4 (Certify, Quote), 22.2 and 22.4 (PCR_Extend, PCR_Read), 23.4 and
    23.7 (PolicySecret, PolicyPCR), 24.1 (CreatePrimary), 28.4 (FlushContext).
"""

import hashlib
from typing import NamedTuple

from consilia.crypto.attestation import tpm_format as form
from consilia.crypto.attestation.credential import ENDORSEMENT_HEAD
from consilia.transport.tpm.link import PASSWORD, Response, TpmLink, sized

OWNER, ENDORSEMENT, _NO_HANDLE = 0x40000001, 0x4000000B, 0x40000007
_PCR_EXTEND, _PCR_READ, _CREATE_PRIMARY, _CREATE, _LOAD = 0x182, 0x17E, 0x131, 0x153, 0x157
_QUOTE, _CERTIFY, _START_SESSION, _ECDH_ZGEN, _FLUSH = 0x158, 0x148, 0x176, 0x154, 0x165
_POLICY_SECRET, _ACTIVATE = 0x151, 0x147
_AES, _CFB, _AES_BITS, _POLICY_SESSION = 0x0006, 0x0043, 128, 1
_OWN = form.FIXED_TPM | form.FIXED_PARENT | form.SENSITIVE_ORIGIN
_NULL = form.ALG_NULL.to_bytes(2, "big")
# No password, and no data: the TPM draws the key.
_SENSITIVE = sized(sized(b"") + sized(b""))
_UNBOUND = sized(b"") + bytes(4)  # no outside data, no registers in the creation data


class Loaded(NamedTuple):
    """A key in the TPM."""

    handle: int
    public: bytes


def _template(attributes: int, *, policy: bytes = b"", symmetric: bytes = _NULL, scheme: bytes = _NULL) -> bytes:
    """Marshal a TPMT_PUBLIC of a P-256 key whose point the TPM fills in."""
    head = form.ALG_ECC.to_bytes(2, "big") + form.ALG_SHA256.to_bytes(2, "big") + attributes.to_bytes(4, "big")
    curve = form.CURVE_P256.to_bytes(2, "big")
    return head + sized(policy) + symmetric + scheme + curve + _NULL + sized(b"") + sized(b"")


def extend(tpm: TpmLink, register: int, digest: bytes) -> None:
    """Set a register to SHA-256(register || digest)."""
    value = (1).to_bytes(4, "big") + form.ALG_SHA256.to_bytes(2, "big") + digest
    tpm.call(_PCR_EXTEND, handles=(register,), authorize=(PASSWORD,), parameters=value)


def registers_digest(tpm: TpmLink, registers: tuple[int, ...]) -> bytes:
    """Return SHA-256 of the registers' values in ascending order."""
    state = hashlib.sha256()
    for register in registers:  # one at a time: a TPM returns eight at most, and which is up to it
        _, response = tpm.call(_PCR_READ, parameters=form.selection((register,)))
        response.take(4 + 10 + 4)  # counter of updates, selection, number of digests
        state.update(response.sized())
    return state.digest()


def signing_key(tpm: TpmLink) -> Loaded:
    """Make the attestation key: the same one each time, until the TPM's owner clears it."""
    scheme = form.ALG_ECDSA.to_bytes(2, "big") + form.ALG_SHA256.to_bytes(2, "big")
    attributes = _OWN | form.USER_WITH_AUTH | form.RESTRICTED | form.SIGN
    return _primary(tpm, ENDORSEMENT, _template(attributes, scheme=scheme))


def storage_key(tpm: TpmLink) -> Loaded:
    """Make the key under which fresh keys are wrapped."""
    symmetric = b"".join(part.to_bytes(2, "big") for part in (_AES, _AES_BITS, _CFB))
    attributes = _OWN | form.USER_WITH_AUTH | form.NO_DA | form.RESTRICTED | form.DECRYPT
    return _primary(tpm, OWNER, _template(attributes, symmetric=symmetric))


def agreement_key(tpm: TpmLink, parent: int, policy: bytes) -> Loaded:
    """Make a fresh key agreement key that works under `policy` alone, and load it."""
    template = _template(_OWN | form.DECRYPT, policy=policy)
    _, response = tpm.call(
        _CREATE, handles=(parent,), authorize=(PASSWORD,), parameters=_SENSITIVE + sized(template) + _UNBOUND
    )
    private, public = response.sized(), response.sized()
    handle, _ = tpm.call(
        _LOAD, handles=(parent,), authorize=(PASSWORD,), parameters=sized(private) + sized(public), gives_handle=True
    )
    return Loaded(handle, public)


def _primary(tpm: TpmLink, hierarchy: int, template: bytes) -> Loaded:
    handle, response = tpm.call(
        _CREATE_PRIMARY, handles=(hierarchy,), authorize=(PASSWORD,),
        parameters=_SENSITIVE + sized(template) + _UNBOUND, gives_handle=True,
    )  # fmt: skip
    return Loaded(handle, response.sized())


def quote(tpm: TpmLink, signer: int, extra: bytes, registers: tuple[int, ...]) -> tuple[bytes, bytes]:
    """Return a signed statement of the registers, and its signature."""
    _, response = tpm.call(
        _QUOTE, handles=(signer,), authorize=(PASSWORD,), parameters=sized(extra) + _NULL + form.selection(registers)
    )
    return response.sized(), response.rest()


def certify(tpm: TpmLink, subject: int, signer: int, extra: bytes) -> tuple[bytes, bytes]:
    """Return a signed statement that `subject` is loaded in this TPM, and its signature."""
    _, response = tpm.call(
        _CERTIFY, handles=(subject, signer), authorize=(PASSWORD, PASSWORD), parameters=sized(extra) + _NULL
    )
    return response.sized(), response.rest()


def agree(tpm: TpmLink, key: int, point: bytes, registers: tuple[int, ...]) -> bytes:
    """Return the x coordinate of the point that `key` and `point` agree on, while the registers fulfil its policy."""
    session = _policy_session(tpm)
    try:
        tpm.call(form.CC_POLICY_PCR, handles=(session,), parameters=sized(b"") + form.selection(registers))
        x, y = point[1 : 1 + form.COORDINATE], point[1 + form.COORDINATE :]
        _, response = tpm.call(_ECDH_ZGEN, handles=(key,), authorize=(session,), parameters=sized(sized(x) + sized(y)))
    except BaseException:
        flush(tpm, session)  # a command that succeeds ends it
        raise
    return Response(response.sized()).sized().rjust(form.COORDINATE, b"\0")


def endorsement_key(tpm: TpmLink) -> Loaded:
    """Make the endorsement key, which the TPM's maker certified: the same one for the TPM's life."""
    zeros = sized(bytes(form.COORDINATE))
    return _primary(tpm, ENDORSEMENT, ENDORSEMENT_HEAD + zeros + zeros)


def activate(tpm: TpmLink, signer: int, endorsement: int, challenge: bytes) -> bytes:
    """Return the secret of a challenge that was made for both keys."""
    session = _policy_session(tpm)
    try:
        nothing = sized(b"") * 3 + bytes(4)  # no nonce, no command, no reference, no expiry
        tpm.call(_POLICY_SECRET, handles=(ENDORSEMENT, session), authorize=(PASSWORD,), parameters=nothing)
        _, response = tpm.call(
            _ACTIVATE, handles=(signer, endorsement), authorize=(PASSWORD, session), parameters=challenge
        )
    except BaseException:
        flush(tpm, session)  # a command that succeeds ends it
        raise
    return response.sized()


def _policy_session(tpm: TpmLink) -> int:
    start = sized(bytes(32)) + sized(b"") + bytes([_POLICY_SESSION]) + _NULL + form.ALG_SHA256.to_bytes(2, "big")
    session, _ = tpm.call(_START_SESSION, handles=(_NO_HANDLE, _NO_HANDLE), parameters=start, gives_handle=True)
    return session


def flush(tpm: TpmLink, handle: int) -> None:
    """Forget a loaded key or a session."""
    tpm.call(_FLUSH, parameters=handle.to_bytes(4, "big"))
