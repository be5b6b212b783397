"""What is checked around dcap-qvl; that the library verifies is tested on real quotes in test_samples."""

from typing import Any

import pytest
from tests.crypto.attestation.makers import NOW, Quote

from consilia.core.errors import ProtocolError
from consilia.crypto.attestation import dcap
from consilia.crypto.attestation.evidence import Statement


def show(maker: Quote, monkeypatch: pytest.MonkeyPatch, **policy: Any) -> Statement:
    monkeypatch.setattr(dcap, "_library", maker.stand_in)
    return dcap.authenticate(maker.evidence(), maker.policy(**policy), NOW)


def test_states_and_advisories_that_the_policy_names_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    maker = Quote(status="SWHardeningNeeded", advisories=("INTEL-SA-1", "INTEL-SA-2"))
    policy = {"statuses": ["UpToDate", "SWHardeningNeeded"], "advisories": ["INTEL-SA-2", "INTEL-SA-1", "INTEL-SA-3"]}
    assert show(maker, monkeypatch, **policy).tcb == "SWHardeningNeeded, INTEL-SA-1, INTEL-SA-2"


@pytest.mark.parametrize(
    ("maker", "clause"),
    [
        (Quote(status="OutOfDate"), "tcb: needs firmware that is UpToDate; got OutOfDate"),
        (Quote(status="Revoked"), "tcb"),
        (Quote(advisories=("INTEL-SA-1",)), "advisory.*INTEL-SA-1"),
        (Quote(head=b""), "format: needs a quote"),
        (Quote(head=b"\x03\0\x02\0\0\0\0"), "format: needs a quote"),
        (Quote(head=b"\x04\0\x02\0\0\0\0\0"), "format.*version 3"),  # SGX in the form of TDX
        (Quote(head=b"\x03\0\x02\0\x81\0\0\0"), "format.*environment"),
        (Quote("tdx", head=b"\x05\0\x02\0\x81\0\0\0"), "format.*version 4"),
        (Quote("tdx", reports={"TD15": {}}), "format: needs a report of TDX"),
        (Quote(reports={"TD10": {}}), "format: needs a report of SGX"),
        (Quote(collateral={"more": ""}), "collateral"),
        (Quote(collateral={"tcb_info": None}), "collateral"),
    ],
)
def test_a_quote_that_breaks_a_clause_is_refused(maker: Quote, clause: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProtocolError, match=f"Attestation, {clause}"):
        show(maker, monkeypatch)


@pytest.mark.parametrize("error", [ValueError("expired"), OverflowError("expired")])
def test_what_the_library_refuses_is_refused_with_its_reason(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def verify(*_: object) -> None:
        raise error

    package = Quote().stand_in()
    package.verify = verify
    monkeypatch.setattr(dcap, "_library", lambda: package)
    with pytest.raises(ProtocolError, match=r"Attestation, signature.*got expired"):
        dcap.authenticate(Quote().evidence(), Quote().policy(), NOW)


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b"7", b"\xff", b'{"tcb_info": ""}'])
def test_collateral_of_another_form_is_refused(raw: bytes) -> None:
    with pytest.raises(ProtocolError, match="Attestation, collateral"):
        dcap._collateral(raw)
