"""A member's folder: keys that only it can read, a roster that only grows, and its own certificate looked at first."""

import os
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from tests.transport.credentials.world import DAY, NOW, World

from consilia.core.errors import PlanError, StoreError
from consilia.transport.credentials import member
from consilia.transport.credentials.certificates import key_pem, new_key
from consilia.transport.credentials.credentials import Credentials
from consilia.transport.credentials.request import Request

SECRETS = ("identity.key", "tls.key")


def fault(world: World, name: str = "north") -> str:
    """Return what is said about a folder, which must be refused, and make sure that no key is in it."""
    keys = [path.read_bytes() for path in (world.folder / name).glob("*.key") if path.is_file()]
    with pytest.raises(StoreError) as caught:
        world.load(name)
    said = str(caught.value)
    for key in keys:
        words = [word for word in key.decode(errors="replace").replace('"', " ").split() if len(word) > 30]
        assert not any(word in said for word in words)
    return said


def test_a_folder_holds_what_a_process_needs(world: World) -> None:
    found = world.load("north")
    assert (found.name, found.role, found.entry.dns) == ("north", "site", "north")
    assert found.book == world.book
    assert found.consortium == world.office.key.public
    assert found.book.sites.by_name["north"] == found.identity.member
    assert found.book.authenticate(found.chain, NOW) == found.entry
    assert found.ca.startswith(b"-----BEGIN CERTIFICATE-----")
    assert found.tls_key.startswith(b"-----BEGIN PRIVATE KEY-----")
    assert "PRIVATE" not in repr(found)
    assert found.identity.signing.seed.hex() not in repr(found)


def test_keys_are_made_for_their_owner_alone(world: World) -> None:
    for folder in ("north", "consortium"):
        modes = {path.name: path.stat().st_mode & 0o777 for path in (world.folder / folder).iterdir()}
        assert {name: mode for name, mode in modes.items() if name.endswith(".key")}
        assert all(mode == 0o600 for name, mode in modes.items() if name.endswith(".key"))
        assert (world.folder / folder).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("file", SECRETS)
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601, 0o644])
def test_a_key_that_others_may_touch_is_refused(world: World, file: str, mode: int) -> None:
    (world.folder / "north" / file).chmod(mode)
    said = fault(world)
    assert f"got mode {mode:o}" in said
    assert "chmod go-rwx" in said


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o722])
def test_a_folder_that_others_may_write_is_refused(world: World, mode: int) -> None:
    """They could put another key or another consortium's in the place of the right one."""
    (world.folder / "north").chmod(mode)
    assert "one others may change" in fault(world)
    (world.folder / "north").chmod(0o755)
    assert world.load("north").name == "north"


@pytest.mark.parametrize("file", SECRETS)
def test_a_link_to_a_key_is_refused(world: World, file: str) -> None:
    path = world.folder / "north" / file
    path.rename(world.folder / "elsewhere")
    path.symlink_to(world.folder / "elsewhere")
    assert "got a symbolic link" in fault(world)


@pytest.mark.parametrize("file", SECRETS)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_another_users_key_is_refused(world: World, file: str) -> None:
    os.chown(world.folder / "north" / file, 0, 0)
    assert world.load("north").name == "north"
    os.chown(world.folder / "north" / file, 12345, 12345)
    assert "user number 12345" in fault(world)


@pytest.mark.parametrize("file", [*SECRETS, "roster.json"])
def test_missing_damaged_or_strange_files_are_named(world: World, file: str) -> None:
    path = world.folder / "north" / file
    whole = path.read_bytes()
    for content in (
        whole[: len(whole) // 2],
        b"",
        b"\xff" * 200,
        whole[:60] + bytes([whole[60] ^ 1]) + whole[61:],
        b"x" * (1 << 23),
    ):
        path.write_bytes(content)
        assert str(path) in fault(world)
    path.unlink()
    assert str(path) in fault(world)
    path.mkdir()
    assert str(path) in fault(world)
    path.rmdir()
    os.mkfifo(path, 0o600)
    assert str(path) in fault(world)  # and does not wait for a writer


def test_a_folder_without_a_roster_says_what_to_do(world: World) -> None:
    world.join("west", "site")
    said = fault(world, "west")
    assert "Send west.request.json to the consortium's officer" in said
    assert "consilia roster add west --roster roster.json" in said


def test_a_pinned_key_that_others_can_change_is_refused(world: World) -> None:
    path = world.folder / "north" / "consortium.pub"
    path.chmod(0o664)
    assert "written by its owner alone" in fault(world)
    path.chmod(0o644)
    path.write_text("00")
    assert "64 hexadecimal digits" in fault(world)


def test_the_roster_of_another_consortium_is_refused(world: World, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = World.made(tmp_path_factory.mktemp("other"), seed=1)
    shutil.copy(other.folder / "consortium" / "roster.json", world.folder / "north" / "roster.json")
    assert "whose key this folder has" in fault(world)


def test_an_older_roster_is_refused(world: World) -> None:
    place = world.folder / "north"
    old = (place / "roster.json").read_bytes()
    world.revoke("olga", "her key was stolen")
    shutil.copy(world.folder / "consortium" / "roster.json", place / "roster.json")
    assert world.load("north").book.version == 3
    (place / "roster.json").write_bytes(old)  # with it the thief would be let in again
    assert "needs to be version 3 or newer, which was seen here; got an older one" in fault(world)
    (place / "old.json").write_bytes(old)
    with pytest.raises(StoreError, match="version 3 or newer"):
        member.install(place, "north", place / "old.json", NOW, lambda book: True)
    world.take("north")
    assert world.load("north").book.version == 3


def test_two_rosters_of_one_version_are_found_out(world: World) -> None:
    other = world.signed(version=2, members=[one for one in world.book.members if one.name != "olga"])
    (world.folder / "north" / "roster.json").write_bytes(other.to_bytes())
    assert "two rosters were signed with one number" in fault(world)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"digest":"00","version":1}', b'{"version":-1}'])
def test_a_damaged_memory_of_rosters_is_said(world: World, content: bytes) -> None:
    (world.folder / "north" / "roster.seen").write_bytes(content)
    assert "roster.seen" in fault(world)


def test_own_certificate_is_looked_at_first(world: World) -> None:
    for when, says in ((NOW + 399 * DAY, "expired one: it ended on"), (NOW - DAY, "not yet valid: it begins on")):
        with pytest.raises(StoreError, match=says):
            Credentials.load(world.folder / "north", when)
    world.revoke("north", "its laptop was stolen")
    shutil.copy(world.folder / "consortium" / "roster.json", world.folder / "north" / "roster.json")
    assert "got one revoked on 2027-03-01 12:00 UTC: its laptop was stolen" in fault(world)


def test_a_roster_without_oneself_is_refused(world: World) -> None:
    (world.folder / "north" / "roster.json").write_bytes(world.signed(members=[]).to_bytes())
    assert "needs a place on version 3 of the roster" in fault(world)
    (world.folder / "south" / "roster.json").write_bytes(
        world.signed(members=[world.entry("south", "site")]).to_bytes()
    )
    assert "another member of that name" in fault(world, "south")


def test_a_tls_key_that_is_not_the_certificates_is_refused(world: World) -> None:
    (world.folder / "north" / "tls.key").write_bytes(key_pem(new_key()))
    assert "to be the key of the certificate in the roster" in fault(world)


def test_warnings_begin_thirty_days_before_the_end(world: World) -> None:
    found = world.load("north")
    end = found.entry.until
    assert found.warnings(end - 31 * DAY) == []
    assert found.warnings(end - 30 * DAY + timedelta(seconds=1)) == [
        f"the certificate of north expires in 29 days: consilia roster renew north --dir {world.folder / 'north'}"
    ]
    assert "expires in 1 day:" in found.warnings(end - 1.5 * DAY)[0]
    assert "expires in less than a day" in found.warnings(end - timedelta(hours=2))[0]


def test_the_coordinator_is_warned_of_everybody(world: World) -> None:
    hub, end = world.load("hub"), world.load("hub").entry.until
    assert hub.warnings(end - 31 * DAY) == []
    found = hub.warnings(end - 10 * DAY)
    assert len(found) == 4
    assert f"the certificate of hub expires in 10 days: consilia roster renew hub --dir {world.folder / 'hub'}" in found
    assert "the certificate of north expires in 10 days: consilia roster renew north at that member" in found
    assert "the certificate of north has expired: consilia roster renew north at that member" in hub.warnings(end + DAY)


def test_a_newer_roster_is_taken_over_and_a_worse_one_is_not(world: World) -> None:
    held = world.load("hub")
    assert held.refreshed(NOW) is held
    path = world.folder / "hub" / "roster.json"
    good = path.read_bytes()
    world.revoke("south", "left")
    shutil.copy(world.folder / "consortium" / "roster.json", path)
    newer = held.refreshed(NOW)
    assert (newer.book.version, list(newer.book.by_name)) == (3, ["hub", "north", "olga"])
    for worse in (good, b"", b"{}"):
        path.write_bytes(worse)
        with pytest.raises(StoreError):
            newer.refreshed(NOW)


class TestRenewal:
    """A fresh key for TLS: at no moment, and after no crash, is a member without a pair that works."""

    def test_the_old_pair_works_until_the_new_roster_is_there(self, world: World) -> None:
        place, old = world.folder / "north", world.load("north")
        asked = member.renew(place, "north")
        assert world.load("north") == old
        world.now = NOW + DAY
        world.sign(Request.read(asked.path))
        assert world.load("north") == old
        new = world.take("north")
        assert new.tls_key != old.tls_key
        assert new.identity == old.identity
        assert new.entry.until == old.entry.until + DAY
        assert {path.name for path in place.iterdir()} == {
            "identity.key", "tls.key", "consortium.pub", "roster.json", "roster.seen", "north.request.json",
        }  # fmt: skip

    def test_copying_the_roster_is_enough(self, world: World) -> None:
        place = world.folder / "north"
        world.sign(member.renew(place, "north").request)
        shutil.copy(world.folder / "consortium" / "roster.json", place / "roster.json")
        assert world.load("north").entry == world.book.by_name["north"]
        again = member.renew(place, "north")  # a second renewal puts the first one's key in its place
        assert world.load("north").entry == world.book.by_name["north"]
        world.sign(again.request)
        assert world.take("north").entry == world.book.by_name["north"]

    def test_asked_twice_it_is_one_request(self, world: World) -> None:
        first = member.renew(world.folder / "north", "north")
        assert member.renew(world.folder / "north", "north") == first
        first.path.unlink()  # killed between key and request
        again = member.renew(world.folder / "north", "north").request
        assert again.tls == first.request.tls

    def test_renewed_again_under_another_serial(self, world: World) -> None:
        """A request that was never signed, and the certificate was renewed otherwise: it is made anew."""
        place = world.folder / "north"
        asked = member.renew(place, "north")
        shutil.copytree(place, world.folder / "copy")
        world.sign(asked.request)
        world.take("north")
        shutil.copy(world.folder / "consortium" / "roster.json", world.folder / "copy" / "roster.json")
        assert Credentials.load(world.folder / "copy", NOW).tls_key == world.load("north").tls_key
        fresh = member.renew(world.folder / "copy", "north").request
        assert fresh.renews != asked.request.renews

    def test_only_a_member_renews(self, world: World) -> None:
        with pytest.raises(PlanError, match="to be that of south; got that of site north"):
            member.renew(world.folder / "north", "south")
        world.join("west", "site")
        with pytest.raises(StoreError, match="needs the roster that the consortium signed; got none yet"):
            member.renew(world.folder / "west", "west")


def test_a_consortium_that_is_not_believed_leaves_nothing(world: World) -> None:
    world.sign(world.join("west", "site"))
    place = world.folder / "west"
    before = sorted(path.name for path in place.iterdir())
    source = world.folder / "consortium" / "roster.json"
    with pytest.raises(PlanError, match="got no confirmation"):
        member.install(place, "west", source, NOW, lambda book: False)
    assert sorted(path.name for path in place.iterdir()) == before


@pytest.mark.parametrize("kind", ["older", "without it", "with other keys", "of another consortium"])
def test_a_roster_that_is_not_taken_leaves_the_folder_as_it_was(
    world: World, kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place, source = world.folder / "north", world.folder / "new.json"
    old = (place / "roster.json").read_bytes()
    world.revoke("olga")
    world.take("north")
    books = {
        "older": lambda: old,
        "without it": lambda: world.signed(members=[]).to_bytes(),
        "with other keys": lambda: world.signed(members=[world.entry("north", "site")]).to_bytes(),
        "of another consortium": lambda: World.made(tmp_path_factory.mktemp("other"), seed=1).book.to_bytes(),
    }
    source.write_bytes(books[kind]())
    before = {path: path.read_bytes() for path in place.iterdir()}
    with pytest.raises(StoreError):
        member.install(place, "north", source, NOW, lambda book: True)
    assert {path: path.read_bytes() for path in place.iterdir()} == before


def test_keys_are_never_overwritten(world: World, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in (world.folder / "north").iterdir()}
    with pytest.raises(PlanError, match="a new or empty folder; got one that holds files"):
        world.join("north", "site")
    assert {path: path.read_bytes() for path in (world.folder / "north").iterdir()} == before
    (tmp_path / "file").write_text("mine")
    with pytest.raises(PlanError, match="new or empty folder"):
        world.join("file", "site")
    assert (tmp_path / "file").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    world.join("empty", "site")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]  # nothing aside is left
