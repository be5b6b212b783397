import dataclasses
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.crypto.attestation.makers import MIDDLE, NOW, Nitro, cbor, certificate, chain, p256

from consilia.core.errors import ProtocolError
from consilia.crypto.attestation.evidence import Statement
from consilia.crypto.attestation.nitro import authenticate


def show(maker: Nitro) -> Statement:
    return authenticate(maker.evidence(), maker.policy(), NOW)


def test_with_and_without_the_tag_of_cose() -> None:
    assert show(Nitro()) == show(Nitro(tag=b"\xd2"))
    with pytest.raises(ProtocolError, match="no tag"):
        show(Nitro(tag=b"\xd2\xd2"))


def test_documents_of_indefinite_length_are_read_as_newer_hypervisors_write_them() -> None:
    assert show(Nitro(endless=True)) == show(Nitro())


def test_zero_registers_are_a_debug_mode() -> None:
    for zero in range(3):
        registers = {i: bytes(48) if i == zero else bytes([i + 1]) * 48 for i in range(16)}
        assert show(Nitro(registers=registers)).debug
    assert not show(Nitro(registers={i: bytes(48) if i > 2 else bytes([i + 1]) * 48 for i in range(16)})).debug


@pytest.mark.parametrize(
    ("changes", "clause"),
    [
        ({"digest": "SHA256"}, "hashed with SHA384"),
        ({"timestamp": -1}, "timestamp"),
        ({"timestamp": True}, "timestamp"),
        ({"timestamp": "now"}, "timestamp"),
        ({"pcrs": []}, "PCR0, PCR1, PCR2"),
        ({"pcrs": {0: b"a" * 48, 1: b"b" * 48}}, "PCR0, PCR1, PCR2"),
        ({"pcrs": {0: b"a" * 48, 1: b"b" * 48, 2: b"c" * 47}}, "PCR0, PCR1, PCR2"),
        ({"pcrs": {0: b"a" * 48, 1: b"b" * 48, 2: "c" * 48}}, "PCR0, PCR1, PCR2"),
        ({"user_data": b"u" * 513}, "at most 512"),
        ({"user_data": "text"}, "user_data"),
        ({"nonce": 7}, "nonce"),
        ({"public_key": b"k" * 1025}, "at most 1024"),
        ({"cabundle": []}, "bundle of 1 to 7"),
        ({"cabundle": [b""] * 8}, "bundle of 1 to 7"),
        ({"cabundle": None}, "bundle of 1 to 7"),
        ({"cabundle": [7]}, "at most 1024 bytes"),
        ({"certificate": b"c" * 1025}, "at most 1024 bytes"),
        ({"certificate": None}, "at most 1024 bytes"),
        ({"more": 1}, "a document of"),
    ],
)
def test_a_document_of_another_form_is_refused(changes: dict[str, Any], clause: str) -> None:
    with pytest.raises(ProtocolError, match="Attestation") as caught:
        show(Nitro(changes=changes))
    assert clause in str(caught.value)


def test_a_chain_in_another_order_or_without_its_middle_is_refused() -> None:
    _, middle, root = chain()
    for bundle in ([middle, root], [root], [root, middle, middle], [middle]):
        with pytest.raises(ProtocolError, match=r"Attestation, (chain|root)"):
            show(Nitro(changes={"cabundle": bundle}))


def test_a_leaf_on_another_curve_is_refused() -> None:
    for key in (p256(5), rsa.generate_private_key(65537, 3072)):
        leaf = certificate("leaf", key, "middle", MIDDLE)
        with pytest.raises(ProtocolError, match="signature: needs a key on P-384"):
            show(Nitro(changes={"certificate": leaf}))


@pytest.mark.parametrize(
    ("envelope", "clause"),
    [
        ({0: 7}, "byte strings"),
        ({2: "text"}, "byte strings"),
        ({3: None}, "byte strings"),
        ({3: bytes(95)}, "96 bytes"),
        ({3: bytes(97)}, "96 bytes"),
        ({3: bytes(96)}, "the hypervisor's signature"),
        ({3: b"\xff" * 96}, "the hypervisor's signature"),
        ({3: b"\1" * 96}, "the hypervisor's signature"),
        ({2: cbor([1])}, "a document of"),
        ({2: cbor(sorted(Nitro().document()))}, "a document of"),  # a list of the right names
    ],
)
def test_an_envelope_of_another_form_is_refused(envelope: dict[int, Any], clause: str) -> None:
    with pytest.raises(ProtocolError, match=f"Attestation.*{clause}"):
        show(Nitro(envelope=envelope))


def test_what_is_no_envelope_is_refused() -> None:
    whole = Nitro().evidence()
    for body in (cbor({1: 2, 3: 4, 5: 6, 7: 8}), cbor([b""] * 3), cbor([b""] * 5), cbor(7)):
        with pytest.raises(ProtocolError, match="COSE_Sign1 of four parts"):
            authenticate(dataclasses.replace(whole, body=body), Nitro().policy(), NOW)


def test_fields_may_be_empty_and_as_long_as_the_standard_says() -> None:
    assert show(Nitro(changes={"user_data": None})).bound == b""
    assert show(Nitro(changes={"user_data": b"u" * 512})).bound == b"u" * 512
    assert show(Nitro(changes={"timestamp": 0})).issued == 0


@pytest.mark.parametrize(
    ("changes", "clause"),
    [
        ({"protected": {1: -7}}, "ES384"),
        ({"protected": {1: -35, 4: b"id"}}, "ES384"),
        ({"protected": {}}, "ES384"),
        ({"unprotected": {4: b"id"}}, "ES384"),
    ],
)
def test_other_headers_are_refused(changes: dict[str, Any], clause: str) -> None:
    with pytest.raises(ProtocolError, match=clause):
        show(Nitro(**changes))
