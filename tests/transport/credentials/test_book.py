"""The roster: what the consortium signed and nothing else, in every field."""

import copy
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.transport.credentials.world import DAY, NOW, World

from consilia.core.canonical import canonical_bytes
from consilia.core.errors import StoreError
from consilia.core.randomness import SecretRng
from consilia.crypto.signing import SigningKey
from consilia.transport.credentials.book import MOST_BYTES, PURPOSE, Book
from consilia.transport.credentials.certificates import Authority, der, new_key


def fault(raw: bytes, key: bytes | None) -> str:
    """Return what is said about a roster, which must be refused."""
    with pytest.raises(StoreError) as caught:
        Book.read(raw, key)
    return str(caught.value)


def test_what_was_signed_is_read_back(world: World) -> None:
    book = world.book
    assert book == Book.read(book.to_bytes(), book.public)
    assert book == Book.read(world.folder / "consortium" / "roster.json", book.public)
    assert [(one.name, one.role) for one in book.members] == [
        ("hub", "coordinator"), ("north", "site"), ("olga", "operator"), ("south", "site"),
    ]  # fmt: skip
    assert book.coordinator.name == "hub"
    assert book.version == 2


def test_secure_sums_get_the_sites_and_only_them(world: World) -> None:
    sites = world.book.sites
    sites.verify(world.office.key.public)
    assert [member.name for member in sites.members] == ["north", "south"]
    assert sites.by_name["north"] == world.load("north").identity.member


def test_a_consortium_may_have_no_coordinator_yet(tmp_path: Path) -> None:
    book = World.made(tmp_path, roles={}).book
    assert book.members == ()
    with pytest.raises(StoreError, match="needs a coordinator; got none"):
        _ = book.coordinator


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield (*path, key)
            yield from leaves(inner, (*path, key))


def variants(document: Any) -> Iterator[tuple[str, Any]]:
    """Yield the document with each field changed in several ways, removed, repeated or joined by another."""
    for path in leaves(document):
        label = ".".join(map(str, path))
        old = inside(document, path)
        others = {"other": changed(old), "null": None, "zero": 0, "list": [old], "true": True, "text": "x", "huge": 10**400,
                  "float": 1.5}  # fmt: skip
        for what, new in others.items():
            made = copy.deepcopy(document)
            inside(made, path[:-1])[path[-1]] = new
            if new != old:
                yield f"{label} {what}", made
        removed = copy.deepcopy(document)
        del inside(removed, path[:-1])[path[-1]]
        yield f"{label} removed", removed
        more = copy.deepcopy(document)
        holder = inside(more, path[:-1])
        if isinstance(holder, dict):
            holder["more"] = 1
        else:
            holder.append(holder[0])
        yield f"{label} joined", more


def inside(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def changed(old: Any) -> Any:
    if isinstance(old, str):
        return old[:-1] + ("0" if old[-1] != "0" else "1")
    return old + 1 if isinstance(old, int) else old


def test_no_field_can_be_changed(world: World) -> None:
    book = world.revoke("olga")
    raw = book.to_bytes()
    taken = []
    for what, made in variants(json.loads(raw)):
        for key in (book.public, None):  # also at a first roster, where the file itself says whose it is
            try:
                Book.read(canonical_bytes(made), key)
                taken.append(what)
            except StoreError:
                pass
    assert taken == []


@given(st.integers(0, 10**7), st.integers(1, 255))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_byte_can_be_changed(world: World, at: int, by: int) -> None:
    raw = bytearray(book_bytes(world))
    raw[at % (len(raw) - 1)] ^= by  # the newline at the end says nothing
    fault(bytes(raw), book_key(world))


def book_bytes(world: World) -> bytes:
    return (world.folder / "consortium" / "roster.json").read_bytes()


def book_key(world: World) -> bytes:
    return bytes.fromhex((world.folder / "north" / "consortium.pub").read_text())


@given(st.binary(max_size=300) | st.text(max_size=100).map(lambda text: json.dumps({"format": text}).encode()))
def test_other_files_are_refused(raw: bytes) -> None:
    fault(raw, None)


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"null", b"[]", b"{}", b"[" * 100_000, b"{" * 1000, b"1" * 5000, b'{"version":NaN}', b'"\\ud800"', b"\xff\xfe",
        b'{"version":1,"version":2}', b"-----BEGIN CERTIFICATE-----",
    ],
)  # fmt: skip
def test_documents_that_hurt_parsers_are_refused(raw: bytes) -> None:
    fault(raw, None)


def test_a_roster_that_is_too_large_is_not_even_parsed(tmp_path: Path) -> None:
    assert f"at most {MOST_BYTES} bytes" in fault(b" " * (MOST_BYTES + 1), None)
    path = tmp_path / "roster.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(StoreError, match="at most"):
        Book.read(path, None)


def test_another_spelling_of_the_same_content_is_refused(world: World) -> None:
    book = world.book
    value = json.loads(book.to_bytes())
    assert "written differently" in fault(json.dumps(value, indent=1).encode(), book.public)
    assert (
        Book.read(b"\r\n" + book.to_bytes() + b"\r\n", book.public) == book
    )  # what mail adds at the ends does no harm


def test_all_faults_are_told_at_once(world: World) -> None:
    value = json.loads(world.book.to_bytes())
    value["version"], value["colour"] = -1, "blue"
    value["members"][0]["role"] = "king"
    del value["members"][1]["der"]
    text = fault(canonical_bytes(value), world.book.public)
    for part in ("a whole number from 1", '"colour"', "members[0].role", '"king"', "members[1].der"):
        assert part in text
    assert len(text.splitlines()) == 4


def test_a_roster_of_another_consortium_is_refused(world: World) -> None:
    other = SigningKey.draw(SecretRng(bytes(32)))
    book = world.book
    again = Book.signed(other, consortium=book.consortium, version=9, issued=NOW, authority=book.authority,
                        members=book.members, revoked=())  # fmt: skip
    assert Book.read(again.to_bytes(), None).public == other.public
    assert "another, named heart-study" in fault(again.to_bytes(), book.public)
    lying = dataclasses.replace(again, public=book.public)  # says the right key, signed by another
    assert "the consortium's signature" in fault(lying.to_bytes(), book.public)


def test_a_signature_for_something_else_does_not_count(world: World) -> None:
    book, key = world.book, world.office.key
    body = {name: value for name, value in json.loads(book.to_bytes()).items() if name != "signature"}
    assert key.sign(PURPOSE + canonical_bytes(body)) == book.signature
    bare = dataclasses.replace(book, signature=key.sign(canonical_bytes(body)))
    fault(bare.to_bytes(), book.public)
    swapped = dataclasses.replace(book, signature=book.sites_signature, sites_signature=book.signature)
    fault(swapped.to_bytes(), book.public)


def test_even_the_consortium_cannot_sign_nonsense(world: World) -> None:
    """What an officer with other tools, or a thief of the key, might sign: it must make sense, too."""
    book, key = world.book, world.office.key
    hub, north, olga, south = book.members
    revoked = world.revoke("olga").revoked[0]
    strange = Authority.create("heart-study", NOW)
    cases: dict[str, tuple[Book, str]] = {
        "two of a name": (world.signed(members=[north, north]), "more than once"),
        "names that read alike": (world.signed(members=[north, world.entry("North", "site")]), "case and punctuation"),
        "one key for two": (
            world.signed(members=[north, dataclasses.replace(world.entry("west", "site"), sealing=north.sealing)]),
            "more than once",
        ),
        "the consortium's own key": (
            world.signed(members=[dataclasses.replace(world.entry("west", "site"), verifying=key.public)]),
            "more than once",
        ),
        "a revoked key": (
            world.signed(members=[dataclasses.replace(world.entry("west", "site"), verifying=revoked.verifying)],
                         revoked=[revoked]),
            "more than once",
        ),
        "two coordinators": (world.signed(members=[hub, world.entry("hub2", "coordinator")]), "at most one coordinator"),
        "another authority's": (world.signed(members=[world.entry("west", "site", authority=strange)]), "for site west"),
        "another's certificate": (world.signed(members=[dataclasses.replace(north, der=south.der)]), "for site north"),
        "another role": (world.signed(members=[dataclasses.replace(olga, role="site")]), "for site olga"),
        "no certificate": (world.signed(members=[dataclasses.replace(north, der=b"\0")]), "for site north"),
        "no authority": (world.signed(authority=north.der), "the certificate of an authority"),
    }  # fmt: skip
    for what, (made, says) in cases.items():
        assert says in fault(made.to_bytes(), key.public), what


def test_members_come_in_one_order(world: World) -> None:
    book, key = world.book, world.office.key
    mixed = dataclasses.replace(book, members=book.members[::-1])
    assert "members by ascending name" in fault(resigned(mixed, key).to_bytes(), key.public)


def test_what_secure_sums_take_is_signed_by_itself(world: World) -> None:
    book, key = world.book, world.office.key
    other = dataclasses.replace(book, sites_signature=world.signed(members=[]).sites_signature)
    assert "signature over exactly these sites" in fault(resigned(other, key).to_bytes(), key.public)


def resigned(book: Book, key: SigningKey) -> Book:
    body = {name: value for name, value in json.loads(book.to_bytes()).items() if name != "signature"}
    return dataclasses.replace(book, signature=key.sign(PURPOSE + canonical_bytes(body)))


def test_the_list_of_members_has_an_end(world: World) -> None:
    value = json.loads(world.book.to_bytes())
    value["members"] = value["members"][:1] * 1001
    assert "at most 1000" in fault(canonical_bytes(value), world.book.public)


def test_moments_are_written_in_one_way(world: World) -> None:
    value = json.loads(world.book.to_bytes())
    for wrong in ("2027-03-01T12:00:00+00:00", "2027-3-1T12:00:00Z", "2027-03-01 12:00:00Z", "2027-02-30T12:00:00Z"):
        assert "a moment such as" in fault(canonical_bytes({**value, "issued": wrong}), world.book.public)


def test_a_thousand_members_fit(world: World) -> None:
    book = world.book
    authority = world.office.authority
    certificate = der(authority.issue("a" * 63, "coordinator", new_key().public_key(), NOW + DAY))
    line = len(json.dumps({**json.loads(book.to_bytes())["members"][0], "name": "a" * 63})) + 2 * len(certificate)
    assert 1000 * line < MOST_BYTES
