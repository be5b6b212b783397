"""What certificates say and allow, to this program, to OpenSSL's command and to a TLS handshake."""

import shutil
import ssl
import subprocess
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.transport.credentials.world import DAY, NOW, World

from consilia.transport.credentials.certificates import (
    Authority,
    der,
    is_authority,
    is_for,
    issued_by,
    new_key,
    pem,
    read_certificate,
)  # fmt: skip
from consilia.transport.credentials.credentials import Credentials
from consilia.transport.credentials.names import ROLES, Role, dns, name, name_problem
from consilia.transport.credentials.standing import owner
from consilia.transport.credentials.tls import present

AUTHORITY = Authority.create("heart-study", NOW)
PURPOSE = {
    "site": ExtendedKeyUsageOID.CLIENT_AUTH, "operator": ExtendedKeyUsageOID.CLIENT_AUTH,
    "coordinator": ExtendedKeyUsageOID.SERVER_AUTH,
}  # fmt: skip
NAMES = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9 _.-]{0,61}[A-Za-z0-9])?", fullmatch=True)


@pytest.mark.parametrize("role", ROLES)
def test_a_member_certificate_allows_one_thing(role: Role) -> None:
    found = AUTHORITY.issue("VA Long Beach", role, new_key().public_key(), NOW)
    value = found.extensions.get_extension_for_class
    assert list(value(x509.ExtendedKeyUsage).value) == [PURPOSE[role]]
    assert value(x509.ExtendedKeyUsage).critical
    assert value(x509.BasicConstraints).critical
    assert not value(x509.BasicConstraints).value.ca
    usage = value(x509.KeyUsage).value
    assert usage.digital_signature
    assert not any((usage.key_cert_sign, usage.crl_sign, usage.key_agreement, usage.key_encipherment))
    names = value(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["va-long-beach"]
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == [f"consilia:{role}:VA%20Long%20Beach"]
    assert (found.not_valid_before_utc, found.not_valid_after_utc) == (NOW - timedelta(minutes=5), NOW + 398 * DAY)
    assert found.serial_number.bit_length() > 64
    assert issued_by(found, AUTHORITY.certificate)
    assert owner(found) == ("VA Long Beach", role)


def test_the_authority_issues_members_and_no_authorities() -> None:
    found = AUTHORITY.certificate
    assert is_authority(found)
    assert found.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length == 0
    assert found.not_valid_after_utc - NOW > 3650 * DAY
    assert not is_authority(AUTHORITY.issue("a", "site", new_key().public_key(), NOW))


def test_no_certificate_outlives_its_authority() -> None:
    late = NOW + 3600 * DAY
    assert AUTHORITY.issue("a", "site", new_key().public_key(), late).not_valid_after_utc == (
        AUTHORITY.certificate.not_valid_after_utc
    )


def test_serials_do_not_repeat() -> None:
    key = new_key().public_key()
    assert len({AUTHORITY.issue("a", "site", key, NOW).serial_number for _ in range(20)}) == 20


def forged(
    *, subject: str = "a", dns_name: str = "a", uri: str = "consilia:site:a", purposes: tuple[x509.ObjectIdentifier, ...] = (
        ExtendedKeyUsageOID.CLIENT_AUTH,
    ), authority: bool = False, signs: bool = False, curve: ec.EllipticCurve | None = None,
) -> x509.Certificate:  # fmt: skip
    """Return what an officer with other tools might have issued under the consortium's authority."""
    public = ec.generate_private_key(curve or ec.SECP256R1()).public_key()
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=signs, crl_sign=False, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    builder = (
        x509.CertificateBuilder().subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(AUTHORITY.certificate.subject).public_key(public).serial_number(7)
        .not_valid_before(NOW).not_valid_after(NOW + DAY).add_extension(usage, critical=True)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(dns_name), x509.UniformResourceIdentifier(uri)]), critical=False)
    )  # fmt: skip
    return builder.sign(AUTHORITY.key, hashes.SHA256())


def test_only_what_the_authority_writes_is_a_member_certificate() -> None:
    assert is_for(forged(), "a", "site")
    both = (ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH)
    others = {
        "another role": forged(uri="consilia:operator:a"), "another name": forged(subject="b"), "a host": forged(dns_name="b"),
        "both purposes": forged(purposes=both), "a server": forged(purposes=both[1:]), "signs": forged(signs=True),
        "an authority": forged(authority=True), "another curve": forged(curve=ec.SECP384R1()),
    }  # fmt: skip
    assert [what for what, found in others.items() if is_for(found, "a", "site")] == []


def test_a_bare_certificate_is_nobodys() -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    bare = (
        x509.CertificateBuilder().subject_name(x509.Name([])).issuer_name(AUTHORITY.certificate.subject)
        .public_key(key.public_key()).serial_number(1).not_valid_before(NOW).not_valid_after(NOW + DAY)
        .sign(AUTHORITY.key, hashes.SHA256())
    )  # fmt: skip
    assert owner(bare) == ("", None)
    assert not is_for(bare, "", "site")
    assert not is_authority(bare)


@given(NAMES, st.sampled_from(ROLES))
@settings(max_examples=30, deadline=None)
def test_every_name_a_plan_may_have_comes_back(word: str, role: Role) -> None:
    assert name(word) == word
    found = AUTHORITY.issue(word, role, new_key().public_key(), NOW)
    assert is_for(found, word, role)
    assert owner(found) == (word, role)
    assert set(dns(word)) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


@pytest.mark.parametrize(
    "word", ["", " a", "a ", "-a", "a.", "a/b", "../a", "a\n", "a\0", "é", "a" * 64, "a:b", "a\u202eb", "*"]
)
def test_other_names_are_refused(word: str) -> None:
    assert name_problem(word, "the name") is not None


# Newer versions of the library refuse a serial number below 1, today's warns.
@pytest.mark.filterwarnings("ignore:Parsed a serial number which wasn't positive")
@given(st.binary(max_size=200) | st.builds(lambda at, to: flipped(at, to), st.integers(0, 10**6), st.integers(1, 255)))
@settings(max_examples=300, deadline=None)
def test_bytes_that_are_none_are_read_as_none(raw: bytes) -> None:
    found = read_certificate(raw)
    if found is not None:
        # A signature has several spellings, so what counts is the roster's exact bytes; what was signed has one.
        assert not issued_by(found, AUTHORITY.certificate) or found.tbs_certificate_bytes == SIGNED
        owner(found)
        is_for(found, "a", "site")
        is_authority(found)


ISSUED = AUTHORITY.issue("a", "site", new_key().public_key(), NOW)
MEMBER, SIGNED = der(ISSUED), ISSUED.tbs_certificate_bytes


def flipped(at: int, to: int) -> bytes:
    raw = bytearray(MEMBER)
    raw[at % len(raw)] ^= to
    return bytes(raw)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the command openssl")
def test_openssl_agrees(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(pem(AUTHORITY.certificate))
    for role in ROLES:
        (tmp_path / f"{role}.pem").write_bytes(pem(AUTHORITY.issue("a", role, new_key().public_key(), NOW)))

    def verifies(role: str, purpose: str, when: datetime = NOW) -> bool:
        done = subprocess.run(
            ["openssl", "verify", "-x509_strict", "-purpose", purpose, "-attime", f"{when.timestamp():.0f}",
             "-CAfile", "ca.pem", f"{role}.pem"], cwd=tmp_path, capture_output=True, check=False,
        )  # fmt: skip
        return done.returncode == 0

    assert {(role, purpose) for role in ROLES for purpose in ("sslclient", "sslserver") if verifies(role, purpose)} == {
        ("site", "sslclient"), ("operator", "sslclient"), ("coordinator", "sslserver"),
    }  # fmt: skip
    assert not verifies("site", "sslclient", NOW + 399 * DAY)
    assert not verifies("site", "sslclient", NOW - DAY)
    assert verifies("site", "sslclient", NOW - timedelta(minutes=4))


def handshake(server: Credentials, client: Credentials) -> None:
    """Do a TLS handshake as gRPC's ends would: both show a certificate, the client asks for the coordinator's DNS name."""

    def context(side: int, own: Credentials) -> ssl.SSLContext:
        made = ssl.SSLContext(side)
        made.verify_mode = ssl.CERT_REQUIRED
        made.verify_flags |= ssl.VERIFY_X509_STRICT
        made.load_verify_locations(cadata=own.ca.decode())
        present(made, own)
        return made

    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    serving = context(ssl.PROTOCOL_TLS_SERVER, server).wrap_bio(to_server, to_client, server_side=True)
    dialling = context(ssl.PROTOCOL_TLS_CLIENT, client).wrap_bio(
        to_client, to_server, server_hostname=client.book.coordinator.dns
    )
    done: set[ssl.SSLObject] = set()
    for end in (dialling, serving) * 4:
        try:
            end.do_handshake()
            done.add(end)
        except ssl.SSLWantReadError:
            continue
    assert done == {serving, dialling}
    assert serving.getpeercert(binary_form=True) == client.entry.der


def test_tls_takes_each_member_in_its_own_direction(tmp_path: Path) -> None:
    here = datetime.now(NOW.tzinfo)
    world = World.made(tmp_path, here)
    hub, north, olga = world.load("hub"), world.load("north"), world.load("olga")
    handshake(hub, north)
    handshake(hub, olga)
    with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
        handshake(hub, hub)  # the coordinator posing as a site
    with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
        handshake(north, olga)  # a site posing as the coordinator
    (tmp_path / "others").mkdir()
    with pytest.raises(ssl.SSLError, match="certificate"):
        handshake(hub, World.made(tmp_path / "others", here, seed=1).load("north"))
