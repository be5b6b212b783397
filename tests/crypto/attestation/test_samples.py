"""Evidence that real hardware signed: accepted at its own time, refused where any signed byte differs."""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterable

import pytest
from tests.crypto.attestation.samples import AMD_MILAN, SAMPLES, Sample, nitro, sev_snp, sgx, tdx

from consilia.core.errors import ProtocolError
from consilia.crypto.attestation import Evidence, Policy, verify
from consilia.crypto.attestation import dcap as dcap_module
from consilia.crypto.attestation import nitro as nitro_module
from consilia.crypto.attestation import sev_snp as sev_snp_module
from consilia.crypto.attestation.evidence import Statement

AUTHENTICATE: dict[str, Callable[[Evidence, Policy, int], Statement]] = {
    "sgx": dcap_module.authenticate,
    "tdx": dcap_module.authenticate,
    "nitro": nitro_module.authenticate,
    "sev-snp": sev_snp_module.authenticate,
}
CONTEXT, NONCE = b"c" * 32, b"n" * 32


def authenticate(sample: Sample) -> Statement:
    return AUTHENTICATE[sample.evidence.kind](sample.evidence, sample.policy, sample.now)


def with_body(sample: Sample, body: bytes) -> Sample:
    return dataclasses.replace(sample, evidence=dataclasses.replace(sample.evidence, body=body))


def flipped(data: bytes, at: int, mask: int = 1) -> bytes:
    return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


def refused(sample: Sample, clause: str = "Attestation") -> None:
    with pytest.raises(ProtocolError, match=clause):
        authenticate(sample)


@pytest.mark.parametrize("kind", ["sgx", "tdx", "sev-snp"])
def test_a_real_sample_is_authentic_at_its_own_time_and_its_code_is_named(kind: str) -> None:
    sample = SAMPLES[kind]()
    statement = authenticate(sample)
    assert statement.measurement == sample.policy.measurements[0]
    assert not statement.debug


def test_what_the_samples_say() -> None:
    assert authenticate(sgx()).bound == b"Hello, world!".ljust(64, b"\0")
    assert authenticate(sgx()).tcb == "ConfigurationAndSWHardeningNeeded, INTEL-SA-00289, INTEL-SA-00615"
    assert authenticate(tdx()).tcb == "UpToDate"
    assert authenticate(sev_snp()).tcb == "bootloader 3, tee 0, snp 8, microcode 115"
    assert authenticate(nitro()).issued == 1_695_049_410


@pytest.mark.parametrize("kind", ["sgx", "tdx", "sev-snp"])
def test_a_sample_that_binds_no_key_of_ours_is_refused_for_that_alone(kind: str) -> None:
    sample = SAMPLES[kind]()
    with pytest.raises(ProtocolError, match="binding"):
        verify(sample.evidence, sample.policy, context=CONTEXT, nonce=NONCE, now=sample.now)


def test_the_nitro_sample_is_of_a_debug_mode_and_refused() -> None:
    sample = nitro()
    assert authenticate(sample).debug
    with pytest.raises(ProtocolError, match="debug"):
        verify(sample.evidence, sample.policy, context=CONTEXT, nonce=NONCE, now=sample.now)


@pytest.mark.parametrize(
    ("kind", "now", "clause"),
    [
        ("sev-snp", 1_672_531_200, "validity"),  # before the chip's certificate
        ("sev-snp", 1_920_000_000, "validity"),
        ("nitro", 1_695_049_411 + 14 * 86400, "validity"),
        ("sgx", 1_753_000_000, "signature"),  # after nextUpdate
        ("tdx", 1_753_000_000, "signature"),
    ],
)
def test_at_another_time_it_is_refused(kind: str, now: int, clause: str) -> None:
    refused(dataclasses.replace(SAMPLES[kind](), now=now), clause)


def test_every_byte_of_the_snp_report_is_signed() -> None:
    sample = sev_snp()
    for at in range(0x2A0):
        for mask in (1, 0x80):
            refused(with_body(sample, flipped(sample.evidence.body, at, mask)))
    for at in range(0x2A0, 0x4A0):
        refused(with_body(sample, flipped(sample.evidence.body, at)), "signature")


def test_every_byte_of_the_nitro_document_is_signed() -> None:
    sample = nitro()
    for at in range(len(sample.evidence.body)):
        refused(with_body(sample, flipped(sample.evidence.body, at)))


# What no signature covers: lengths and types between the parts, line ends of the certificates' text, and the root's
# certificate with what follows it, for the root is pinned and not read from the quote.
@pytest.mark.parametrize(
    ("kind", "report", "framing"),
    [("sgx", 432, {*range(1046, 1052)}), ("tdx", 632, {*range(632, 636), *range(764, 770)})],
)
def test_every_signed_byte_of_a_quote_counts(kind: str, report: int, framing: set[int]) -> None:
    sample = SAMPLES[kind]()
    body = sample.evidence.body
    whole, root = authenticate(sample), body.rindex(b"-----BEGIN CERTIFICATE")
    for at in [*range(report + 700), *range(report + 700, root, 2), *range(root, len(body), 50)]:
        changed = with_body(sample, flipped(body, at))
        if at in framing or at >= root or body[at : at + 1] == b"\n":
            with contextlib.suppress(ProtocolError):
                assert authenticate(changed) == whole, at
        else:
            refused(changed)


@pytest.mark.parametrize("kind", ["sgx", "tdx"])
@pytest.mark.parametrize("part", ["tcb_info", "qe_identity", "tcb_info_signature", "qe_identity_signature", "pck_crl"])
def test_a_change_of_collateral_is_refused(kind: str, part: str) -> None:
    sample = SAMPLES[kind]()
    table = json.loads(sample.evidence.collateral)
    at = table[part].rindex("UpToDate") if "UpToDate" in table[part] else len(table[part]) - 3
    table[part] = table[part][:at] + ("0" if table[part][at] != "0" else "1") + table[part][at + 1 :]
    changed = dataclasses.replace(sample.evidence, collateral=json.dumps(table).encode())
    refused(dataclasses.replace(sample, evidence=changed), "signature")


def policy(sample: Sample, **changes: object) -> Sample:
    return dataclasses.replace(sample, policy=dataclasses.replace(sample.policy, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sample", "changes", "clause"),
    [
        (sgx, {"statuses": ("UpToDate",)}, "tcb"),
        (sgx, {"advisories": ("INTEL-SA-00289",)}, "advisory.*INTEL-SA-00615"),
        (tdx, {"statuses": ("OutOfDate",)}, "tcb"),
        (sev_snp, {"minimum_tcb": (3, 0, 9, 115)}, "tcb.*snp 9"),
        (sev_snp, {"minimum_tcb": (4, 0, 8, 115)}, "tcb.*bootloader 4"),
        (sev_snp, {"roots": ("ab" * 32,)}, f"root.*{AMD_MILAN}"),
        (nitro, {"roots": (AMD_MILAN,)}, "root"),
    ],
)
def test_a_policy_that_asks_for_more_refuses(
    sample: Callable[[], Sample], changes: dict[str, object], clause: str
) -> None:
    refused(policy(sample(), **changes), clause)


def certificates(sample: Sample) -> list[bytes]:
    found, rest = [], sample.evidence.collateral
    while rest:
        size = 4 + int.from_bytes(rest[2:4], "big")
        found.append(rest[:size])
        rest = rest[size:]
    return found


def with_collateral(sample: Sample, parts: Iterable[bytes]) -> Sample:
    return dataclasses.replace(sample, evidence=dataclasses.replace(sample.evidence, collateral=b"".join(parts)))


def test_the_chips_chain_must_be_whole_and_in_order() -> None:
    sample = sev_snp()
    vcek, ask, ark = certificates(sample)
    authenticate(with_collateral(sample, [vcek, ask, ark]))
    for parts in ([], [vcek], [vcek, ask], [vcek, ark, ask], [ask, vcek, ark], [vcek, ark, ark], [vcek, ask, ark, ark]):
        refused(with_collateral(sample, parts))


@pytest.mark.parametrize("which", [0, 1, 2])
def test_every_byte_of_the_chips_certificates_is_signed(which: int) -> None:
    sample = sev_snp()
    parts = certificates(sample)
    for at in range(0, len(parts[which]), 7):
        changed = [flipped(part, at) if i == which else part for i, part in enumerate(parts)]
        refused(with_collateral(sample, changed))


def test_evidence_of_one_kind_is_none_of_another() -> None:
    quotes = sgx(), tdx()
    for one, other in (quotes, quotes[::-1]):
        mixed = dataclasses.replace(one, evidence=dataclasses.replace(one.evidence, body=other.evidence.body))
        refused(mixed, "format")
        with pytest.raises(ProtocolError, match="kind"):
            verify(one.evidence, other.policy, context=CONTEXT, nonce=NONCE, now=one.now)
