"""One verification for every kind of evidence: what the hardware signed, against what the site accepts."""

from collections.abc import Callable
from hmac import compare_digest

from consilia.crypto.attestation.dcap import authenticate as authenticate_quote
from consilia.crypto.attestation.evidence import Claims, Evidence, Kind, Statement, binding
from consilia.crypto.attestation.nitro import authenticate as authenticate_document
from consilia.crypto.attestation.policy import Policy
from consilia.crypto.attestation.refusal import refuse
from consilia.crypto.attestation.sev_snp import authenticate as authenticate_report
from consilia.crypto.attestation.tpm import authenticate as authenticate_tpm

_FUTURE = 300  # seconds that a document may be ahead of the site's clock
_AUTHENTICATE: dict[Kind, Callable[[Evidence, Policy, int], Statement]] = {
    "sgx": authenticate_quote,
    "tdx": authenticate_quote,
    "nitro": authenticate_document,
    "sev-snp": authenticate_report,
    "tpm": authenticate_tpm,
}


def verify(evidence: Evidence, policy: Policy, *, context: bytes, nonce: bytes, now: int) -> Claims:
    """Return what a site may believe about its coordinator.

    Args:
        evidence: As it came.
        policy: What the site accepts.
        context: What the run is, 32 bytes, the same at both ends and never reused.
        nonce: 32 bytes that this site drew for this question and uses once.
        now: Seconds since 1970.

    Returns:
        The claims. `claims.key` is the only key to seal an update to.

    Raises:
        ProtocolError: Naming the clause that does not hold.

    Guarantees:
        If the hardware's signatures cannot be forged and SHA-256 has no collisions: code of an allowed measurement, not in
        a debug mode, put SHA-256(context || nonce || claims.key) into its evidence after this site drew the nonce.
        What it does not show is in docs/howto/attested-aggregator.md.
    """
    evidence.require_sound()
    if not policy.measurements:
        raise refuse(
            "policy", needs="a list of allowed measurements", got="none", hint="Name the code that may aggregate"
        )
    if evidence.kind != policy.kind:
        raise refuse("kind", needs=f"{policy.kind} evidence", got=evidence.kind)
    expected = binding(context, nonce, evidence.key)
    statement = _AUTHENTICATE[evidence.kind](evidence, policy, now)
    if statement.debug:
        raise refuse("debug", needs="an enclave or guest that its operator cannot look into", got="a debug mode")
    if statement.measurement not in policy.measurements:
        raise refuse("measurement", needs="code that the policy names", got=statement.measurement)
    _require_bound(evidence, statement, nonce, expected)
    issued = now if statement.issued is None else statement.issued
    if not now - policy.max_age <= issued <= now + _FUTURE:
        raise refuse("age", needs=f"evidence of at most {policy.max_age} seconds", got=f"{now - issued} seconds")
    issued = min(issued, now)
    return Claims(
        evidence.kind, statement.measurement, evidence.key, statement.tcb, debug=False, issued=issued,
        expires=issued + policy.max_age,
    )  # fmt: skip


def _require_bound(evidence: Evidence, statement: Statement, nonce: bytes, expected: bytes) -> None:
    if statement.nonce is not None and not compare_digest(statement.nonce, nonce):
        raise refuse("nonce", needs="the nonce that this site drew", got="another one")
    if statement.key is not None and not compare_digest(statement.key, evidence.key):
        raise refuse("key", needs="the key beside the evidence to be the key in it", got="another one")
    if not compare_digest(statement.bound, expected.ljust(len(statement.bound), b"\0")):
        raise refuse("binding", needs="SHA-256 of this run's context, this site's nonce and the coordinator's key",
                     got=statement.bound.hex()[:64])  # fmt: skip
