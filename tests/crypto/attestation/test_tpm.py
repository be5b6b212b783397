"""A TPM's statements, forged clause by clause; what a live one says is tested in tests/transport/tpm."""

from typing import Any

import pytest
from tests.crypto.attestation.makers import NOW, OPENER_ATTRIBUTES, SIGNER_ATTRIBUTES, Tpm

from consilia.core.errors import ProtocolError
from consilia.crypto.attestation import Evidence, tpm
from consilia.crypto.attestation import tpm_format as form
from consilia.crypto.attestation.evidence import Statement


def show(maker: Tpm, **policy: Any) -> Statement:
    return tpm.authenticate(maker.evidence(), maker.policy(**policy), NOW)


def test_a_quote_of_our_own_making_reads_as_it_was_written() -> None:
    statement = show(Tpm())
    assert statement.measurement == f"sha256:14={'5a' * 32}"
    assert statement.tcb == "firmware 0000000000000000, started 1 times"
    assert show(Tpm(safe=b"\0")).tcb.endswith(", clock set back")
    assert show(Tpm(registers=(0, 7, 23))).measurement.startswith("sha256:0,7,23=")


def test_what_an_owner_may_choose_is_accepted() -> None:
    show(Tpm(opener_attributes=OPENER_ATTRIBUTES | form.NO_DA))
    show(Tpm(signer_attributes=SIGNER_ATTRIBUTES | form.USER_WITH_AUTH | form.NO_DA))
    show(Tpm(opener_scheme=b"\x00\x19\x00\x0b"))


@pytest.mark.parametrize(
    ("changes", "clause"),
    [
        # A key that opens otherwise than by its policy, leaves the TPM, came from outside, or signs.
        ({"opener_attributes": OPENER_ATTRIBUTES | form.USER_WITH_AUTH}, "key: needs a decryption key"),
        ({"opener_attributes": OPENER_ATTRIBUTES & ~form.FIXED_TPM}, "key: needs a decryption key"),
        ({"opener_attributes": OPENER_ATTRIBUTES & ~form.FIXED_PARENT}, "key: needs a decryption key"),
        ({"opener_attributes": OPENER_ATTRIBUTES & ~form.SENSITIVE_ORIGIN}, "key: needs a decryption key"),
        ({"opener_attributes": OPENER_ATTRIBUTES | form.SIGN}, "key: needs a decryption key"),
        ({"opener_attributes": OPENER_ATTRIBUTES & ~form.DECRYPT}, "key: needs a decryption key"),
        ({"opener_scheme": b"\x00\x18\x00\x0b"}, "key: needs a decryption key"),
        ({"key_policy": b""}, "key policy"),
        ({"key_policy": form.policy_pcr((14,), b"\x5b" * 32)}, "key policy"),
        ({"key_policy": form.policy_pcr((13,), b"\x5a" * 32)}, "key policy"),
        ({"certified": b"\x00\x0b" + b"x" * 32}, "key: needs the key that the TPM certified"),
        ({"certified": b""}, "key: needs the key that the TPM certified"),
        ({"key": bytes(32)}, "key: needs the key beside the evidence"),
        # An attestation key that would sign anything.
        ({"signer_attributes": SIGNER_ATTRIBUTES & ~form.RESTRICTED}, "attestation key"),
        ({"signer_attributes": SIGNER_ATTRIBUTES | form.DECRYPT}, "attestation key"),
        ({"signer_attributes": SIGNER_ATTRIBUTES & ~form.FIXED_TPM}, "attestation key"),
        ({"signer_attributes": SIGNER_ATTRIBUTES & ~form.SENSITIVE_ORIGIN}, "attestation key"),
        ({"signer_scheme": b"\x00\x10"}, "attestation key"),
        ({"signer_scheme": b"\x00\x18\x00\x0c"}, "attestation key"),
        # Statements that do not belong together, or were not made by a TPM.
        ({"quote_resets": 2}, "quote and certificate of one start"),
        ({"safe": b"\x02"}, "yes or no"),
        ({"magic": b"\xffTCH"}, "quote: needs a statement made by a TPM"),
        ({"quote_type": b"\x80\x17"}, "quote: needs a statement made by a TPM"),
        ({"digest": b"\x5a" * 31}, "a SHA-256 of the registers"),
        ({"registers": ()}, "registers of the SHA-256 bank"),
        ({"selection": b"\0\0\0\x01\x00\x04\x03\x00\x40\x00"}, "registers of the SHA-256 bank"),  # SHA-1
        ({"selection": b"\0\0\0\x02\x00\x0b\x03\x00\x40\x00"}, "registers of the SHA-256 bank"),
        ({"signature_head": b"\x00\x18\x00\x04"}, "ECDSA with SHA-256"),
        ({"signature_head": b"\x00\x14\x00\x0b"}, "ECDSA with SHA-256"),
    ],
)
def test_a_statement_that_breaks_a_clause_is_refused(changes: dict[str, Any], clause: str) -> None:
    with pytest.raises(ProtocolError, match="Attestation") as caught:
        show(Tpm(**changes))
    assert clause in str(caught.value)


def test_a_key_that_nobody_pinned_is_refused() -> None:
    with pytest.raises(ProtocolError, match="Attestation, root"):
        show(Tpm(), roots=["ab" * 32])


def test_a_quote_for_one_nonce_and_a_certificate_for_another_do_not_go_together() -> None:
    first, second = Tpm().parts(), Tpm(nonce=b"m" * 32).parts()
    mixed = Evidence("tpm", tpm.body(*first[:2], *second[2:]), Tpm().key)
    with pytest.raises(ProtocolError, match="for one nonce"):
        tpm.authenticate(mixed, Tpm().policy(), NOW)


def test_signatures_of_another_key_are_refused() -> None:
    quote, _, certify, certify_signature, signer, opener = Tpm().parts()
    for parts in (
        (quote, certify_signature, certify, certify_signature, signer, opener),
        (quote, Tpm().sign(quote), certify, Tpm().sign(quote), signer, opener),
    ):
        with pytest.raises(ProtocolError, match="Attestation, signature"):
            tpm.authenticate(Evidence("tpm", tpm.body(*parts), Tpm().key), Tpm().policy(), NOW)
