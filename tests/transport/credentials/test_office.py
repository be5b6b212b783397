"""What an officer signs: requests that a member made itself, once, and nothing that was lost, stolen or seen before."""

import contextlib
import copy
import dataclasses
import itertools
import json
import os
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.transport.credentials.test_book import variants
from tests.transport.credentials.world import DAY, NOW, World

from consilia.core.canonical import canonical_bytes
from consilia.core.errors import PlanError, StoreError
from consilia.core.randomness import SecretRng
from consilia.secagg.roster import Identity
from consilia.transport.credentials import files, member
from consilia.transport.credentials.certificates import is_for, key_pem, new_key
from consilia.transport.credentials.names import Role
from consilia.transport.credentials.office import Office
from consilia.transport.credentials.request import Request, consortium_fingerprint


def refused(world: World, *requests: Request) -> str:
    """Return why requests are not signed; the folder must be as before."""
    path = world.folder / "consortium" / "roster.json"
    before = path.read_bytes()
    with pytest.raises(StoreError) as caught:
        world.sign(*requests)
    assert path.read_bytes() == before
    return str(caught.value)


def request(name: str, role: Role = "site", *, key: ec.EllipticCurvePrivateKey | None = None) -> Request:
    """Return the request of a member that has no folder."""
    identity = Identity.draw(name, SecretRng(os.urandom(32)))
    return Request.made(identity, role, new_key() if key is None else key, None)


def test_a_signed_member_has_the_key_it_asked_for(world: World) -> None:
    asked = world.join("west", "site")
    book = world.sign(Request.read(world.folder / "west" / "west.request.json"))
    entry = book.by_name["west"]
    assert (entry.tls, entry.verifying, entry.sealing) == (asked.tls, asked.verifying, asked.sealing)
    assert (book.version, len(book.members)) == (3, 5)
    assert world.take("west").name == "west"


def test_no_field_of_a_request_can_be_changed() -> None:
    asked = request("west")
    raw = asked.to_bytes()
    assert Request.read(raw) == asked
    taken = []
    for what, made in variants(json.loads(raw)):
        try:
            Request.read(canonical_bytes(made))
            taken.append(what)
        except StoreError:
            pass
    assert taken == []


def test_another_key_under_a_members_name_is_seen() -> None:
    """What somebody between member and officer can do: sign a request of their own. The fingerprint is another."""
    mine, theirs = request("west"), request("west")
    assert mine.fingerprint != theirs.fingerprint
    swapped = dataclasses.replace(mine, csr=theirs.csr)
    with pytest.raises(StoreError, match="the member's signature"):
        Request.read(swapped.to_bytes())
    for change in (
        {"name": "east"},
        {"role": "operator"},
        {"renews": "7"},
        {"sealing": bytes(32)},
        {"csr": theirs.csr},
    ):
        assert dataclasses.replace(mine, **change).fingerprint != mine.fingerprint


def test_fingerprints_can_be_read_out(world: World) -> None:
    for found in (request("west").fingerprint, consortium_fingerprint(world.book.public)):
        groups = found.split(" ")
        assert [len(group) for group in groups] == [4] * 6
        assert set("".join(groups)) <= set("0123456789abcdef")


def with_csr(csr: x509.CertificateSigningRequest) -> Request:
    """Return a request around a CSR that other tools made, properly signed by the member's own key."""
    identity = Identity.draw("west", SecretRng(os.urandom(32)))
    bare = Request("west", "site", identity.signing.public, identity.sealing.public,
                   csr.public_bytes(serialization.Encoding.DER), None, b"")  # fmt: skip
    return dataclasses.replace(bare, signature=identity.signing.sign(bare._text))


def csr(name: str = "west", curve: ec.EllipticCurve | None = None) -> x509.CertificateSigningRequestBuilder:
    return x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    )


def test_what_else_a_csr_asks_for_is_not_granted(world: World) -> None:
    greedy = csr().add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    greedy = greedy.add_extension(x509.SubjectAlternativeName([x509.DNSName("hub"), x509.DNSName("*")]), critical=False)
    book = world.sign(Request.read(with_csr(greedy.sign(new_key(), hashes.SHA256())).to_bytes()))
    assert is_for(book.by_name["west"].certificate, "west", "site")


def test_a_csr_of_another_name_curve_or_key_is_refused() -> None:
    two = csr().subject_name if False else x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "west"), x509.NameAttribute(NameOID.ORGANIZATION_NAME, "x")])
    )  # fmt: skip
    good = csr().sign(new_key(), hashes.SHA256())
    raw = bytearray(good.public_bytes(serialization.Encoding.DER))
    raw[-1] ^= 1  # a signature by no key: nobody has shown to hold the private one
    cases = [
        csr("east").sign(new_key(), hashes.SHA256()), two.sign(new_key(), hashes.SHA256()),
        csr().sign(ec.generate_private_key(ec.SECP384R1()), hashes.SHA256()), x509.load_der_x509_csr(bytes(raw)),
    ]  # fmt: skip
    assert Request.read(with_csr(good).to_bytes()).name == "west"
    for one in cases:
        with pytest.raises(StoreError, match="a request for TLS under the same name"):
            Request.read(with_csr(one).to_bytes())


class TestWhatIsNotSigned:
    """Each with its reason; the roster stays as it was."""

    def test_another_key_for_a_known_name(self, world: World) -> None:
        said = refused(world, request("north"))
        assert "needs the keys and role of the site north on the roster; got others" in said
        assert "consilia roster revoke north" in said

    def test_another_role_for_a_known_member(self, world: World) -> None:
        identity = world.load("north").identity
        assert "got others" in refused(world, Request.made(identity, "operator", new_key(), None))

    def test_a_renewal_of_nobody(self, world: World) -> None:
        identity = Identity.draw("west", SecretRng(os.urandom(32)))
        assert "none to renew" in refused(world, Request.made(identity, "site", new_key(), "1f"))

    def test_an_old_request_again(self, world: World) -> None:
        """The first request's TLS key was stolen, the member renewed; the thief sends the first request in once more."""
        first = Request.read(world.folder / "north" / "north.request.json")
        second = member.renew(world.folder / "north", "north").request
        world.sign(second)
        said = refused(world, first)
        assert "got an older request, or one signed before" in said
        assert "may come from a thief" in said
        world.take("north")
        world.sign(member.renew(world.folder / "north", "north").request)
        assert "one signed before" in refused(world, second)

    def test_keys_of_a_revoked_member(self, world: World) -> None:
        first = Request.read(world.folder / "north" / "north.request.json")
        world.revoke("north", "stolen")
        assert "got those of a revoked member" in refused(world, first)
        identity = world.load("south").identity
        stolen = dataclasses.replace(identity, name="west", sealing=Identity.draw("x", SecretRng(bytes(32))).sealing)
        world.revoke("south", "stolen")
        assert "got those of a revoked member" in refused(world, Request.made(stolen, "site", new_key(), None))

    def test_names_that_read_alike(self, world: World) -> None:
        for name in ("North", "NORTH", "nOrth"):
            assert "reads like another member's" in refused(world, request(name))
        assert "reads like another member's" in refused(world, request("new site"), request("new-site"))

    def test_a_second_coordinator(self, world: World) -> None:
        assert "needs to be the only coordinator" in refused(world, request("hub2", "coordinator"))
        world.revoke("hub", "replaced")
        assert world.sign(request("hub2", "coordinator")).coordinator.name == "hub2"

    def test_one_key_for_two_members(self, world: World) -> None:
        key = new_key()
        assert "a TLS key of its own" in refused(world, request("west", key=key), request("east", key=key))
        same = world.load("south").identity
        twin = Request.made(dataclasses.replace(same, name="west"), "site", new_key(), None)
        assert "keys of its own; got another member's" in refused(world, twin)

    def test_two_requests_of_one_name(self, world: World) -> None:
        assert "several of one name" in refused(world, request("west"), request("west"))

    def test_one_bad_request_holds_all_back_and_all_reasons_are_told(self, world: World) -> None:
        said = refused(world, request("west"), request("north"), request("south"))
        assert [("north" in line, "south" in line) for line in said.splitlines()] == [(True, False), (False, True)]


def test_signed_twice_it_is_the_same_roster(world: World) -> None:
    """The officer's second try after a kill: nothing new is issued, the roster is the one that may have been sent already."""
    first = world.sign(world.join("west", "site"))
    assert world.sign(Request.read(world.folder / "west" / "west.request.json")) == first
    assert world.sign() == first


def test_revoking_needs_a_member_and_a_reason(world: World) -> None:
    with pytest.raises(PlanError) as caught:
        world.revoke("nobody", "\n")
    assert "members: hub, north, olga, south" in str(caught.value)
    assert "option --reason needs a line of 1 to 200 printable characters" in str(caught.value)
    with pytest.raises(PlanError, match="printable"):
        world.revoke("north", "\x1b[31mred")
    book = world.revoke("north", "left")
    assert "north" not in book.by_name
    assert [(one.name, one.reason) for one in book.revoked] == [("north", "left")]
    assert "north" not in book.sites.by_name


def test_a_clock_that_runs_behind_signs_nothing(world: World) -> None:
    asked = world.join("west", "site")
    world.now = NOW - timedelta(minutes=6)
    assert "needs to be past 2027-03-01 12:00 UTC" in refused(world, asked)
    with pytest.raises(StoreError, match="this machine's clock"):
        world.revoke("north")
    world.now = NOW - timedelta(minutes=4)
    world.sign(asked)


def test_an_office_does_not_work_from_an_old_roster(world: World) -> None:
    path = world.folder / "consortium" / "roster.json"
    old = path.read_bytes()
    world.revoke("north", "stolen")
    path.write_bytes(old)  # a copy of the folder's file from last week: it would sign a second version 3
    with pytest.raises(StoreError, match="version 3 or newer"):
        _ = world.office


@pytest.mark.parametrize("file", ["consortium.key", "ca.key", "roster.json"])
def test_an_office_names_its_damaged_files(world: World, file: str) -> None:
    path = world.folder / "consortium" / file
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with pytest.raises(StoreError, match=file):
        _ = world.office
    path.write_bytes(whole)
    if file.endswith(".key"):
        path.chmod(0o640)
        with pytest.raises(StoreError, match="got mode 640"):
            _ = world.office


def test_an_authoritys_key_of_another_consortium_is_refused(world: World) -> None:
    (world.folder / "consortium" / "ca.key").write_bytes(key_pem(new_key()))
    with pytest.raises(StoreError, match="to be the authority's in the roster; got another"):
        _ = world.office


def test_a_consortium_is_founded_once(world: World) -> None:
    before = {path: path.read_bytes() for path in (world.folder / "consortium").iterdir()}
    with pytest.raises(PlanError, match="a new or empty folder"):
        Office.found(world.folder / "consortium", "heart-study", SecretRng(os.urandom(32)), NOW)
    assert {path: path.read_bytes() for path in (world.folder / "consortium").iterdir()} == before
    with pytest.raises(PlanError, match="the consortium's name needs"):
        Office.found(world.folder / "other", "a/b", SecretRng(os.urandom(32)), NOW)


def test_two_at_once_is_one_too_many(world: World) -> None:
    place = world.folder / "consortium"
    with files.locked(place), pytest.raises(StoreError, match="one command at a time"), files.locked(place):
        pass
    with files.locked(place):
        pass


FULL = """
import resource, sys
from datetime import datetime
from pathlib import Path
from tests.transport.credentials.world import World, NOW
world = World(Path(sys.argv[1]))
asked = world.join("west", "site")
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))  # as a full disk: every file ends after 100 bytes
join, take = (lambda: world.join("east", "site")), (lambda: world.take("north"))
for work in (lambda: world.sign(asked), lambda: world.revoke("north"), join, take):
    try:
        work()
        print("done")
    except Exception as error:
        print(type(error).__name__, error)
"""


def test_a_full_disk_leaves_everything_as_it_was(world: World) -> None:
    root = Path(__file__).resolve().parents[3]
    world.revoke("olga", "left")  # so that north has a newer roster to take
    before = tree(world.folder)
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(world.folder)], capture_output=True, text=True, timeout=60, check=True, cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    assert all(line.startswith("StoreError file ") and "File too large" in line for line in lines), done.stdout
    after = tree(world.folder)
    assert {path: content for path, content in after.items() if path.parts[0] != "west"} == before
    assert not any(path.name.startswith(".") for path in after)


def tree(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_kill_at_any_file_leaves_a_member_that_works(
    pattern: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Renew, sign, take: ended before each of its changes of a file, then simply done again."""
    names = ("link", "replace", "unlink")
    real: dict[str, Any] = {name: getattr(os, name) for name in names}
    left = 0

    def counted(name: str) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt  # and so does every clean-up after it, as nothing runs after a kill
            return real[name](*args, **options)

        return call

    def work(world: World) -> None:
        if world.load("north").entry == old and world.book.by_name["north"] == old:
            world.sign(member.renew(world.folder / "north", "north").request)
        world.take("north")

    for step in itertools.count():
        world = World(tmp_path / str(step))
        shutil.copytree(pattern, world.folder)
        old, left = world.load("north").entry, step
        for name in names:
            monkeypatch.setattr(os, name, counted(name))
        with contextlib.suppress(KeyboardInterrupt):
            work(world)
        monkeypatch.undo()
        assert world.load("north").name == "north", step  # whatever was done so far, it can go on
        work(world)
        after = world.load("north")
        assert after.entry == world.book.by_name["north"] != old
        assert world.book.version == 3
        if left >= 0:
            break
    assert step >= 10


def test_copies_are_what_they_say(world: World) -> None:
    """An officer's copy of the folder works as the folder does."""
    shutil.copytree(world.folder / "consortium", world.folder / "safe")
    assert Office.open(world.folder / "safe").book == world.book
    assert copy.copy(world.book) == world.book
    world.now = NOW + DAY
    assert world.sign(request("west")).issued == NOW + DAY
