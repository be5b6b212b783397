"""A certificate that does not count is refused with a message that says which of all reasons it is."""

from collections.abc import Callable, Collection
from datetime import datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.transport.credentials.world import DAY, NOW, World

from consilia.core.errors import TransportError
from consilia.transport.credentials.book import Book
from consilia.transport.credentials.certificates import der, issued_by
from consilia.transport.credentials.names import CLIENTS, Role

SERVER: tuple[Role, ...] = ("coordinator",)
SITES: tuple[Role, ...] = ("site",)


def refused(book: Book, shown: bytes | None, now: datetime = NOW, roles: Collection[Role] = CLIENTS) -> str:
    with pytest.raises(TransportError) as caught:
        book.authenticate(shown, now, roles)
    assert caught.value.exit_code == 6
    return str(caught.value)


def test_members_are_known_in_their_own_direction(world: World) -> None:
    book = world.book
    for name in ("north", "south", "olga"):
        entry = book.authenticate(world.load(name).chain, NOW)
        assert (entry.name, entry.role) == (name, book.by_name[name].role)
        assert book.authenticate(entry.der, NOW) == entry  # DER as well as PEM
        assert "wrong purpose" in refused(book, entry.der, roles=SERVER)
    hub = book.coordinator
    assert book.authenticate(hub.der, NOW, SERVER) == hub
    assert "the certificate of coordinator hub" in refused(book, hub.der)
    assert "got the wrong purpose: the coordinator, which is dialled" in refused(book, hub.der)
    assert "wrong purpose" in refused(book, world.load("olga").chain, roles=SITES)


@pytest.mark.parametrize("nothing", [None, b""])
def test_none(world: World, nothing: bytes | None) -> None:
    assert "the other end needs a certificate of consortium heart-study; got none." in refused(world.book, nothing)


def test_no_certificate_at_all(world: World) -> None:
    assert "got bytes that are none" in refused(world.book, b"hello")


def test_of_another_consortium(world: World, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = World.made(tmp_path_factory.mktemp("other"), seed=1)  # the same names, other keys
    assert "got one of another authority" in refused(world.book, other.load("north").chain)
    assert "got one of another authority" in refused(world.book, other.book.authority)


def test_the_authority_is_no_member(world: World) -> None:
    said = refused(world.book, world.book.authority)
    assert "wrong purpose: none of these" in said
    assert "off the roster" in said


def test_expired_and_not_yet_valid_say_when(world: World) -> None:
    shown = world.load("north").chain
    assert "an expired one: it ended on 2028-04-02 12:00 UTC. At that member: consilia roster renew" in refused(
        world.book, shown, NOW + 399 * DAY
    )
    early = refused(world.book, shown, NOW - DAY)
    assert "one not yet valid: it begins on 2027-03-01 11:55 UTC, here it is 2027-02-28 12:00 UTC" in early
    assert "clocks" in early
    assert world.book.authenticate(shown, NOW - timedelta(minutes=4)).name == "north"  # a clock that lags a little


def test_off_the_roster(world: World) -> None:
    stranger = world.entry("west", "site")  # the authority's own, never put on the roster: a stolen ca.key can make it
    assert "the certificate of site west needs a member on version 2 of the roster; got one that is off the roster" in (
        refused(world.book, stranger.der)
    )


def test_a_second_certificate_of_a_member_does_not_count(world: World) -> None:
    later = world.entry("north", "site", now=NOW + DAY)  # as a stolen ca.key can make it
    assert "got a newer one. Give this end the newest roster.json" in refused(world.book, later.der, NOW + DAY)


def test_superseded_and_too_new(world: World) -> None:
    from consilia.transport.credentials import member

    old, before = world.load("north"), world.book
    request = member.renew(world.folder / "north", "north").request
    world.now = NOW + DAY
    world.sign(request)
    fresh = world.take("north")
    assert "got a superseded one: it was renewed since. Give that member the newest" in refused(
        world.book, old.chain, world.now
    )
    assert world.book.authenticate(fresh.chain, world.now).name == "north"
    assert "got a newer one" in refused(before, fresh.chain, world.now)  # the coordinator has not heard of it


def test_revoked_says_when_and_why(world: World) -> None:
    shown = world.load("north").chain
    book = world.revoke("north", "its laptop was stolen")
    said = refused(book, shown)
    assert "got one revoked on 2027-03-01 12:00 UTC: its laptop was stolen. To come back it needs fresh keys" in said
    world.sign(world.join("north", "site", folder="north again"))  # back with fresh keys: the old certificate stays out
    assert "revoked" in refused(world.book, shown)
    assert world.book.authenticate(world.take("north", "north again").chain, NOW).name == "north"


def test_every_reason_is_told_at_once(world: World) -> None:
    shown = world.load("hub").chain
    said = refused(world.revoke("hub", "replaced"), shown, NOW + 400 * DAY)
    assert len(said.splitlines()) == 3
    for part in ("wrong purpose", "expired", "replaced"):
        assert part in said


def test_another_spelling_of_the_signature_does_not_count(world: World) -> None:
    """Anybody can turn an ECDSA signature (r, s) into the equally good (r, n - s): the same certificate with other bytes."""
    good = world.book.by_name["north"].certificate
    r, s = decode_dss_signature(good.signature)
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of P-256
    twin = signed_as(good, encode_dss_signature(r, order - s))
    assert issued_by(twin, world.book.ca)
    assert twin.tbs_certificate_bytes == good.tbs_certificate_bytes
    assert "certificate of site north" in refused(world.book, der(twin))


def signed_as(certificate: x509.Certificate, signature: bytes) -> x509.Certificate:
    """Return a certificate with another signature, by its DER: a sequence of what is signed, the algorithm and a bit string."""
    algorithm = bytes.fromhex("300a06082a8648ce3d040302")  # ecdsa-with-SHA256
    inner = certificate.tbs_certificate_bytes + algorithm + bytes([3, len(signature) + 1, 0]) + signature
    return x509.load_der_x509_certificate(b"\x30\x82" + len(inner).to_bytes(2, "big") + inner)


@pytest.mark.filterwarnings("ignore:Parsed a serial number which wasn't positive")
@given(st.binary(max_size=600), st.integers(0, 10**6), st.integers(1, 255))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_shown_the_answer_is_a_refusal(
    known: Callable[[], tuple[Book, bytes]], raw: bytes, at: int, by: int
) -> None:
    book, good = known()
    refused(book, raw)
    mutated = bytearray(good)
    mutated[at % len(mutated)] ^= by
    refused(book, bytes(mutated))


@pytest.fixture
def known(world: World) -> Callable[[], tuple[Book, bytes]]:
    """A roster and a certificate that counts."""
    book = world.book
    return lambda: (book, book.by_name["north"].der)
