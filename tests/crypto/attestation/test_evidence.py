import dataclasses

import pytest

from consilia.core.errors import ProtocolError
from consilia.crypto.attestation import Claims, Evidence, binding
from consilia.crypto.attestation.evidence import MAX_BODY, MAX_COLLATERAL
from consilia.crypto.attestation.refusal import Reader

EVIDENCE = Evidence("sgx", b"body", b"k" * 32, b"collateral")


def test_evidence_survives_the_wire() -> None:
    assert Evidence.from_bytes(EVIDENCE.to_bytes()) == EVIDENCE


def test_every_cut_and_every_addition_is_refused() -> None:
    raw = EVIDENCE.to_bytes()
    for size in range(len(raw)):
        with pytest.raises(ProtocolError, match="Attestation, format"):
            Evidence.from_bytes(raw[:size])
    with pytest.raises(ProtocolError, match="evidence of version 1"):
        Evidence.from_bytes(b"CNEV\x02" + raw[5:])
    with pytest.raises(ProtocolError, match="no bytes after the end"):
        Evidence.from_bytes(raw + b"\0")


@pytest.mark.parametrize(
    ("changes", "clause"),
    [
        ({"kind": "sgx2"}, "kind"),
        ({"kind": "x" * 17}, "format"),
        ({"key": b"k" * 31}, "key"),
        ({"key": b"\x04" + b"k" * 64}, "key"),  # no point of the curve
        ({"key": b"k" * 66}, "format"),
        ({"body": bytes(MAX_BODY + 1)}, "format"),
        ({"collateral": bytes(MAX_COLLATERAL + 1)}, "format"),
    ],
)
def test_what_cannot_be_evidence_is_refused(changes: dict[str, bytes], clause: str) -> None:
    with pytest.raises(ProtocolError, match=f"Attestation, {clause}"):
        Evidence.from_bytes(dataclasses.replace(EVIDENCE, **changes).to_bytes())  # type: ignore[arg-type]


def test_sizes_and_kind_count_for_evidence_that_was_not_decoded() -> None:
    dataclasses.replace(EVIDENCE, body=bytes(MAX_BODY), collateral=bytes(MAX_COLLATERAL)).require_sound()
    with pytest.raises(ProtocolError, match="Attestation, kind"):
        dataclasses.replace(EVIDENCE, kind="sgx2").require_sound()  # type: ignore[arg-type]
    for changes in ({"body": bytes(MAX_BODY + 1)}, {"collateral": bytes(MAX_COLLATERAL + 1)}):
        with pytest.raises(ProtocolError, match="Attestation, size"):
            dataclasses.replace(EVIDENCE, **changes).require_sound()  # type: ignore[arg-type]


def test_a_reader_gives_no_fewer_bytes_than_it_was_asked_for() -> None:
    assert Reader(b"abc", "format").take(3) == b"abc"
    with pytest.raises(ProtocolError, match="Attestation, format: needs 4 more bytes; got 3"):
        Reader(b"abc", "format").take(4)


def test_each_part_counts_in_the_binding() -> None:
    context, nonce = b"c" * 32, b"n" * 32
    found = {
        binding(context, nonce, b"k" * 32), binding(nonce, context, b"k" * 32), binding(context, nonce, b"l" * 32),
        binding(context, nonce, b"k" * 65), binding(context, b"m" * 32, b"k" * 32),
    }  # fmt: skip
    assert len(found) == 5
    for wrong in (b"", b"n" * 31, b"n" * 33):
        with pytest.raises(ProtocolError, match="32 bytes"):
            binding(context, wrong, b"k" * 32)
        with pytest.raises(ProtocolError, match="32 bytes"):
            binding(wrong, nonce, b"k" * 32)


def test_claims_end() -> None:
    claims = Claims("tpm", "sha256:14=ab", b"k" * 32, "", debug=False, issued=100, expires=200)
    claims.require_fresh(100)
    claims.require_fresh(200)
    for now in (99, 201):
        with pytest.raises(ProtocolError, match="Attestation, age"):
            claims.require_fresh(now)
