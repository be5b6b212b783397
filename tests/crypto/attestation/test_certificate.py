import datetime
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from tests.crypto.attestation.makers import NOW, certificate, fingerprint, p384

from consilia.core.errors import ProtocolError
from consilia.crypto.attestation.certificate import check_chain, parse
from consilia.crypto.attestation.der import Der

ROOT, MIDDLE, LEAF = p384(1), p384(2), p384(3)


def three(*, leaf: dict[str, Any] | None = None, middle: dict[str, Any] | None = None,
          root: dict[str, Any] | None = None) -> list[bytes]:  # fmt: skip
    return [
        certificate("l", LEAF, "m", **{"issuer_key": MIDDLE, **(leaf or {})}),
        certificate("m", MIDDLE, "r", **{"issuer_key": ROOT, "depth": 0, **(middle or {})}),
        certificate("r", ROOT, "r", **{"issuer_key": ROOT, "depth": None, **(root or {})}),
    ]


def check(ders: list[bytes], *, now: int = NOW) -> None:
    check_chain([parse(der) for der in ders], [fingerprint(ders[-1])], now)


def test_a_whole_chain_passes() -> None:
    check(three())
    check(three(middle={"depth": None}, root={"depth": 1}))


@pytest.mark.parametrize(
    ("changes", "clause"),
    [
        ({"leaf": {"issuer_key": ROOT}}, "signatures of the issuers"),
        ({"middle": {"issuer_key": MIDDLE}}, "signatures of the issuers"),
        ({"root": {"issuer_key": MIDDLE}}, "signatures of the issuers"),
        ({"middle": {"depth": "leaf"}}, "may sign certificates"),  # an end entity that signs
        ({"middle": {"signs": False}}, "may sign certificates"),
        ({"root": {"depth": 0}}, "may sign certificates"),  # deeper than the root allows
        ({"root": {"depth": "leaf"}}, "may sign certificates"),
        ({"middle": {"authority": False}}, "may sign certificates"),
        ({"leaf": {"until": NOW - 1}}, "valid now"),
        ({"middle": {"since": NOW + 1}}, "valid now"),
        ({"root": {"until": NOW - 1}}, "valid now"),
        ({"leaf": {"extra": (("1.2.3.4", b"\x05\x00", True),)}}, "critical extension"),
        ({"leaf": {"algorithm": hashes.SHA512()}}, "ECDSA with SHA-256 or SHA-384"),
    ],
)
def test_a_chain_that_breaks_a_clause_is_refused(changes: dict[str, Any], clause: str) -> None:
    with pytest.raises(ProtocolError, match="Attestation") as caught:
        check(three(**changes))
    assert clause in str(caught.value)


def test_the_first_and_the_last_second_count() -> None:
    check(three(leaf={"since": NOW}))
    check(three(leaf={"until": NOW}))


def test_a_root_that_nobody_pinned_is_refused() -> None:
    with pytest.raises(ProtocolError, match="Attestation, root"):
        check_chain([parse(der) for der in three()], ["ab" * 32], NOW)


def test_a_leaf_may_say_that_it_is_none_of_the_authorities() -> None:
    check(three(leaf={"depth": 0, "authority": False, "signs": False}))


def test_a_short_key_usage_is_no_right_to_sign() -> None:
    short = (("2.5.29.15", b"\x03", True),)
    bad = certificate("m", MIDDLE, "r", ROOT, extra=(("2.5.29.19", b"\x30\x03\x01\x01\xff", True), *short))
    with pytest.raises(ProtocolError, match="may sign certificates"):
        check([three()[0], bad, three()[2]])


def test_a_signature_and_its_issuers_key_must_be_of_one_kind() -> None:
    key = rsa.generate_private_key(65537, 3072)
    scheme = padding.PSS(padding.MGF1(hashes.SHA384()), 48)
    pss = certificate("l", LEAF, "r", key, padding=scheme)
    root = certificate("r", key, "r", key, depth=None, padding=scheme)
    for ders in ([certificate("l", LEAF, "r", ROOT), root], [pss, three()[2]]):
        with pytest.raises(ProtocolError, match="ECDSA with SHA-256 or SHA-384, or RSA-PSS"):
            check(ders)


def test_contradictions_inside_a_certificate_are_refused() -> None:
    der = certificate("l", LEAF, "m", MIDDLE, extra=(("1.2.3.4", b"\0", False), ("1.2.3.5", b"\0", False)))
    parse(der)
    outer = der.rindex(bytes.fromhex("2a8648ce3d040303")) + 7
    for changed, needs in (
        (der[:outer] + b"\x02" + der[outer + 1 :], "one signature algorithm"),
        (der.replace(b"\x06\x03\x2a\x03\x05", b"\x06\x03\x2a\x03\x04"), "each extension once"),
        (der.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x01"), "X.509 version 3"),
    ):
        with pytest.raises(ProtocolError, match=needs):
            parse(changed)


def test_a_long_certificate_is_refused() -> None:
    fits = certificate("l", LEAF, "m", MIDDLE, extra=(("1.2.3.4", bytes(7000), False),))
    parse(fits)
    room = 8192 - len(fits)
    parse(certificate("l", LEAF, "m", MIDDLE, extra=(("1.2.3.4", bytes(7000 + room - 4), False),)))
    with pytest.raises(ProtocolError, match="at most 8192 bytes"):
        parse(certificate("l", LEAF, "m", MIDDLE, extra=(("1.2.3.4", bytes(7000 + room + 4), False),)))


def test_extensions_that_are_not_critical_are_passed_over() -> None:
    check(three(leaf={"extra": (("1.2.3.4", b"\x05\x00", False),)}))


def test_names_must_lead_from_one_certificate_to_the_next() -> None:
    _, middle, root = three()
    with pytest.raises(ProtocolError, match="issuer to be the next one's subject"):
        check([certificate("l", LEAF, "someone", MIDDLE), middle, root])
    with pytest.raises(ProtocolError, match="issuer to be the next one's subject"):
        check([certificate("m", MIDDLE, "r", ROOT, depth=0), certificate("r", ROOT, "above", ROOT, depth=None)])


def test_a_chain_needs_a_root_and_no_more_than_it_may_have() -> None:
    root = three()[-1]
    for ders in ([root], [root] * 9):
        with pytest.raises(ProtocolError, match="2 to 8 certificates"):
            check(ders)


def test_rsa_pss_is_checked_in_the_one_form_that_amd_uses() -> None:
    key = rsa.generate_private_key(65537, 3072)
    for salt, algorithm, passes in (
        (48, hashes.SHA384(), True),
        (32, hashes.SHA384(), False),
        (32, hashes.SHA256(), False),
    ):
        scheme = padding.PSS(padding.MGF1(algorithm), salt)
        root = certificate("r", key, "r", key, depth=None, algorithm=algorithm, padding=scheme)
        leaf = certificate("l", LEAF, "r", key, algorithm=algorithm, padding=scheme)
        if passes:
            check([leaf, root])
            other = certificate(
                "l", LEAF, "r", rsa.generate_private_key(65537, 3072), algorithm=algorithm, padding=scheme
            )
            with pytest.raises(ProtocolError, match="signatures of the issuers"):
                check([other, root])
        else:
            with pytest.raises(ProtocolError, match="RSA-PSS with SHA-384"):
                check([leaf, root])


@pytest.mark.parametrize(
    "key", [ec.derive_private_key(5, ec.SECP521R1()), ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32)),
            rsa.generate_private_key(65537, 2048)],
    ids=["P-521", "Ed25519", "RSA-2048"],
)  # fmt: skip
def test_keys_of_other_kinds_are_refused(key: Any) -> None:
    with pytest.raises(ProtocolError, match="P-256 or P-384, or RSA of 3072"):
        parse(certificate("l", key, "r", ROOT))


def test_a_certificate_must_fill_its_bytes() -> None:
    der = three()[0]
    parse(der)
    for changed in (
        der + b"\0",
        der[:-1],
        b"",
        b"\x30",
        b"\x31" + der[1:],
        b"\x30\x80" + der[4:] + b"\0\0",
        bytes(8193),
    ):
        with pytest.raises(ProtocolError, match="Attestation, certificate"):
            parse(changed)


def test_no_changed_byte_of_a_certificate_raises_anything_else() -> None:
    ders = three(leaf={"extra": (("1.2.3.4", b"\x05\x00", False),)})
    for at in range(len(ders[0])):
        for mask in (1, 0x20, 0x80):
            changed = ders[0][:at] + bytes([ders[0][at] ^ mask]) + ders[0][at + 1 :]
            with pytest.raises(ProtocolError, match="Attestation"):
                check([changed, *ders[1:]])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"\x17\x0d700101000000Z", 0),
        (b"\x17\x0d491231235959Z", datetime.datetime(2049, 12, 31, 23, 59, 59, tzinfo=datetime.UTC).timestamp()),
        (b"\x17\x0d500101000000Z", datetime.datetime(1950, 1, 1, tzinfo=datetime.UTC).timestamp()),
        (b"\x18\x0f20501130120000Z", datetime.datetime(2050, 11, 30, 12, tzinfo=datetime.UTC).timestamp()),
        (b"\x17\x0d240229000000Z", datetime.datetime(2024, 2, 29, tzinfo=datetime.UTC).timestamp()),
        (b"\x17\x0d230229000000Z", None),
        (b"\x17\x0d231301000000Z", None),
        (b"\x17\x0d230100000000Z", None),
        (b"\x17\x0d230101240000Z", None),
        (b"\x17\x0d230101006000Z", None),
        (b"\x17\x0d23010100000+Z", None),
        (b"\x17\x0f2301010000+0100", None),
        (b"\x18\x0f00000101000000Z", None),
        (b"\x16\x0d230101000000Z", None),
    ],
)
def test_times(text: bytes, expected: float | None) -> None:
    if expected is None:
        with pytest.raises(ProtocolError, match="certificate"):
            Der.of(text).time()
    else:
        assert Der.of(text).time() == expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [(b"\x02\x01\x00", 0), (b"\x02\x01\x7f", 127), (b"\x02\x02\x00\x80", 128), (b"\x02\x01\x80", -128),
     (b"\x02\x00", None), (b"\x02\x02\x00\x7f", None), (b"\x02\x02\xff\x80", None), (b"\x02\x81\x01\x00", None),
     (b"\x02\x80\x00", None), (b"\x02\x85\0\0\0\0\x01\x00", None), (b"\x02\x05\x00", None)],
)  # fmt: skip
def test_numbers_have_one_form(raw: bytes, expected: int | None) -> None:
    if expected is None:
        with pytest.raises(ProtocolError, match="certificate"):
            Der.of(raw).integer()
    else:
        assert Der.of(raw).integer() == expected
