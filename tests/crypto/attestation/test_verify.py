"""What every kind of evidence must show, and the faults of another framework that must not come back.

NVFlare 2.9 (app_opt/confidential_computing): the prover picked the nonce, no measurement was compared, no key was bound, and
what one verifier had seen could be shown to the next.
"""

import dataclasses

import pytest
from tests.crypto.attestation.makers import CONTEXT, KEY, MAKERS, NONCE, NOW, Maker, Nitro, Quote

from consilia.core.errors import ProtocolError
from consilia.crypto.attestation import Claims, Policy, dcap, verify


@pytest.fixture(params=list(MAKERS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def show(maker: Maker, monkeypatch: pytest.MonkeyPatch, *, policy: Policy | None = None, nonce: bytes = NONCE,
         context: bytes = CONTEXT, now: int = NOW) -> Claims:  # fmt: skip
    if isinstance(maker, Quote):
        monkeypatch.setattr(dcap, "_library", maker.stand_in)
    return verify(maker.evidence(), policy or maker.policy(), context=context, nonce=nonce, now=now)


def test_evidence_that_fulfils_every_clause_gives_claims(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = MAKERS[kind]()
    claims = show(maker, monkeypatch)
    assert (claims.kind, claims.key, claims.debug) == (kind, maker.key, False)
    assert claims.measurement == maker.policy().measurements[0]
    assert (claims.issued, claims.expires) == (NOW, NOW + 100)


def test_a_nonce_that_the_prover_chose_is_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProtocolError, match=r"Attestation, (nonce|binding)"):
        show(MAKERS[kind](nonce=b"p" * 32), monkeypatch)


def test_evidence_shown_to_one_site_is_refused_by_another(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = MAKERS[kind]()
    show(maker, monkeypatch)
    with pytest.raises(ProtocolError, match=r"Attestation, (nonce|binding)"):
        show(maker, monkeypatch, nonce=b"o" * 32)


def test_evidence_of_one_run_is_refused_in_another(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProtocolError, match="Attestation, binding"):
        show(MAKERS[kind](), monkeypatch, context=b"d" * 32)


def test_genuine_hardware_with_other_code_is_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = MAKERS[kind]()
    measurement = maker.policy().measurements[0]
    other = maker.policy(measurements=[measurement[:-1] + ("0" if measurement[-1] != "0" else "1")])
    with pytest.raises(ProtocolError, match="Attestation, measurement"):
        show(maker, monkeypatch, policy=other)


def test_a_policy_without_measurements_refuses_everything(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = MAKERS[kind]()
    with pytest.raises(ProtocolError, match="Attestation, policy"):
        show(maker, monkeypatch, policy=dataclasses.replace(maker.policy(), measurements=()))


def test_a_key_put_beside_genuine_evidence_is_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = MAKERS[kind]()
    if isinstance(maker, Quote):
        monkeypatch.setattr(dcap, "_library", maker.stand_in)
    stolen = dataclasses.replace(maker.evidence(), key=bytes(reversed(KEY)))
    with pytest.raises(ProtocolError, match=r"Attestation, (key|binding)"):
        verify(stolen, maker.policy(), context=CONTEXT, nonce=NONCE, now=NOW)


def test_evidence_of_another_kind_than_the_policys_is_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    others = {other: maker() for other, maker in MAKERS.items() if other != kind}
    for other in others.values():
        with pytest.raises(ProtocolError, match=f"Attestation, kind: needs {other.policy().kind} evidence; got {kind}"):
            show(MAKERS[kind](), monkeypatch, policy=other.policy())


def test_what_a_document_says_in_clear_must_be_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash covers both, and a document that contradicts it is refused all the same."""
    for clause, changes in (("nonce", {"nonce": b"m" * 32}), ("nonce", {"nonce": None}), ("key", {"public_key": None})):
        with pytest.raises(ProtocolError, match=f"Attestation, {clause}"):
            show(Nitro(changes=changes), monkeypatch)


@pytest.mark.parametrize("data", [bytes(64), b"Hello, world!".ljust(64, b"\0")])
def test_a_quote_that_binds_no_key_is_refused(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("sgx", "tdx"):
        with pytest.raises(ProtocolError, match="Attestation, binding"):
            show(MAKERS[kind](changes={"report_data": data.hex()}), monkeypatch)


def test_bytes_after_the_hash_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    maker = Quote()
    report = maker.stand_in().verify().to_json()
    data = report.split('"report_data": "')[1][:64]
    with pytest.raises(ProtocolError, match="Attestation, binding"):
        show(Quote(changes={"report_data": data + "00" * 31 + "01"}), monkeypatch)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("sgx", {"attributes": "07" + "00" * 15}),
        ("tdx", {"td_attributes": "0100001000000000"}),
        ("tdx", {"td_attributes": "8000001000000000"}),
    ],
)
def test_a_quote_of_a_debug_mode_is_refused(
    kind: str, changes: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ProtocolError, match="Attestation, debug"):
        show(MAKERS[kind](changes=changes), monkeypatch)


def test_old_and_future_documents_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def at(seconds: int) -> Claims:
        return show(Nitro(changes={"timestamp": (NOW + seconds) * 1000}), monkeypatch)

    assert at(-100).expires == NOW
    assert at(300).expires == NOW + 100  # a clock ahead earns nothing
    for seconds in (-101, 301):
        with pytest.raises(ProtocolError, match="Attestation, age"):
            at(seconds)


def test_without_the_library_quotes_are_refused_and_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "dcap_qvl", None)
    maker = Quote()
    with pytest.raises(ProtocolError, match=r"consilia\[attest\]"):
        verify(maker.evidence(), maker.policy(), context=CONTEXT, nonce=NONCE, now=NOW)


def test_a_panic_of_the_library_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    def broken(error: BaseException) -> None:
        def stop(*_: object) -> None:
            raise error

        package = Quote().stand_in()
        package.verify = stop
        monkeypatch.setattr(dcap, "_library", lambda: package)

    maker = Quote()
    broken(PanicException("index out of bounds"))
    with pytest.raises(ProtocolError, match="Attestation, format"):
        verify(maker.evidence(), maker.policy(), context=CONTEXT, nonce=NONCE, now=NOW)
    broken(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        verify(maker.evidence(), maker.policy(), context=CONTEXT, nonce=NONCE, now=NOW)
