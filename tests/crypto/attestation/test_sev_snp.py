import dataclasses
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.crypto.attestation.makers import MIDDLE, NOW, Snp, certificate, chain, p256

from consilia.core.errors import ProtocolError
from consilia.crypto.attestation.evidence import Statement
from consilia.crypto.attestation.sev_snp import authenticate


def show(maker: Snp, **policy: Any) -> Statement:
    return authenticate(maker.evidence(), maker.policy(**policy), NOW)


def test_a_report_of_our_own_making_reads_as_it_was_written() -> None:
    statement = show(Snp())
    assert (statement.measurement, statement.debug) == ("ab" * 48, False)
    assert statement.tcb == "bootloader 3, tee 0, snp 8, microcode 115"


@pytest.mark.parametrize("version", [3, 4, 5])
def test_newer_versions_name_the_processor(version: int) -> None:
    assert show(Snp(fields={0x000: bytes([version]), 0x188: b"\x19"})) == show(Snp())


def test_the_debug_bit_of_the_guests_policy_is_seen() -> None:
    assert show(Snp(fields={0x008: (0x30000 | 1 << 19).to_bytes(8, "little")})).debug


@pytest.mark.parametrize(
    ("changes", "clause"),
    [
        ({"fields": {0x000: b"\x01"}}, "format"),
        ({"fields": {0x000: b"\x06"}}, "format"),
        ({"fields": {0x000: b"\x02\x01"}}, "format"),
        ({"fields": {0x000: b"\x03"}}, "processor"),
        ({"fields": {0x000: b"\x05", 0x188: b"\x1a"}}, "processor"),  # Turin, whose TCB has other places
        ({"fields": {0x034: b"\x00"}}, "format"),
        ({"fields": {0x030: b"\x01"}}, "privilege"),
        ({"fields": {0x008: (0x30000 | 1 << 18).to_bytes(8, "little")}}, "migration"),
        ({"fields": {0x048: b"\x02"}}, "signer"),  # the chip's key is masked
        ({"fields": {0x048: b"\x04"}}, "signer"),  # VLEK
        ({"fields": {0x048: b"\x1c"}}, "signer"),  # nobody
        ({"fields": {0x1A0: b"\xce"}}, "chip"),
        ({"certified": (3, 0, 8, 114)}, "tcb"),  # the key of an older firmware, leaked, signs for the newest
        ({"certified": (3, 0, 8)}, "tcb"),
        ({"after": {0x2A0 + 48: b"\x01"}}, "format"),
        ({"after": {0x2E8 + 48: b"\x01"}}, "format"),
        ({"after": {0x49F: b"\x01"}}, "format"),
        ({"after": {0x2A0: bytes(144)}}, "signature"),
        ({"after": {0x2A0: b"\xff" * 48, 0x2E8: b"\xff" * 48}}, "signature"),
    ],
)
def test_a_report_that_breaks_a_clause_is_refused(changes: dict[str, Any], clause: str) -> None:
    with pytest.raises(ProtocolError, match=f"Attestation, {clause}"):
        show(Snp(**changes))


def test_length_and_certificates_must_be_those_of_a_report() -> None:
    whole, policy = Snp().evidence(), Snp().policy()
    vcek, ask, ark = chain(Snp().extensions())
    leaf = certificate("leaf", p256(5), "middle", MIDDLE, extra=Snp().extensions())
    rsa_leaf = certificate("leaf", rsa.generate_private_key(65537, 3072), "middle", MIDDLE, extra=Snp().extensions())
    for changes, clause in (
        ({"body": whole.body + b"\0"}, "format: needs a report of 1184 bytes"),
        ({"body": whole.body[:-1]}, "format: needs a report of 1184 bytes"),
        ({"collateral": vcek + ask}, "chain: needs three certificates: VCEK, ASK, ARK; got 2"),
        ({"collateral": vcek + ask + ark * 4}, "chain: needs three certificates: VCEK, ASK, ARK; got 4"),
        ({"collateral": leaf + ask + ark}, "signature: needs a chip's key on P-384"),
        ({"collateral": rsa_leaf + ask + ark}, "signature: needs a chip's key on P-384"),
    ):
        with pytest.raises(ProtocolError, match=f"Attestation, {clause}"):
            authenticate(dataclasses.replace(whole, **changes), policy, NOW)  # type: ignore[arg-type]


def test_older_firmware_than_the_policys_is_refused_part_by_part() -> None:
    for part, least in (("bootloader", 4), ("tee", 1), ("snp", 9), ("microcode", 116)):
        minimum = {"bootloader": 0, "tee": 0, "snp": 0, "microcode": 0, part: least}
        with pytest.raises(ProtocolError, match=f"Attestation, tcb: needs {part} {least} or newer"):
            show(Snp(), minimum_tcb=minimum)
        show(Snp(), minimum_tcb={**minimum, part: least - 1})
