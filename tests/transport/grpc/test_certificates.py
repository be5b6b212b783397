"""Over real sockets: a certificate that does not count is refused with a message that says which, at both ends; others go on."""

import asyncio
import dataclasses
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest
from tests.transport.credentials.world import DAY, World

from consilia.core.canonical import Json
from consilia.core.errors import StoreError, TransportError
from consilia.core.version import VERSION as CONSILIA
from consilia.core.wire import VERSION as WIRE
from consilia.transport.credentials import member, newest
from consilia.transport.credentials.book import Book
from consilia.transport.credentials.certificates import SKEW, Authority, der, key_pem, new_key
from consilia.transport.credentials.credentials import Credentials
from consilia.transport.credentials.names import Role
from consilia.transport.grpc.channel import CONTROL, SERVICE, client_options
from consilia.transport.grpc.control import call
from consilia.transport.grpc.link import GrpcLink
from consilia.transport.grpc.server import GrpcServer
from consilia.transport.link.hub import Hub
from consilia.transport.link.packets import Hello, Welcome, from_bytes, to_bytes


@pytest.fixture(scope="module", autouse=True)
def runner() -> Iterator[None]:
    """Close the loop of this module's clients at its end."""
    yield
    RUNNER.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A consortium that was founded a moment ago."""
    return World.made(tmp_path_factory.mktemp("world"), datetime.now(UTC).replace(microsecond=0))


@contextmanager
def serving(credentials: Credentials, folder: Path) -> Iterator[tuple[str, GrpcServer]]:
    hub = Hub(folder, heartbeat=5.0, upload_floor=1e5, clock=time.monotonic)
    server = GrpcServer(hub, credentials, "127.0.0.1:0", lambda entry, request: {"you": entry.name})
    try:
        yield f"127.0.0.1:{server.port}", server
    finally:
        server.close()
        hub.close()


@pytest.fixture(scope="module")
def hub(made: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a coordinator in good standing."""
    with serving(made.load("hub"), tmp_path_factory.mktemp("spool")) as (address, _):
        yield address


RUNNER = asyncio.Runner()  # one loop for all: gRPC's poller goes on telling every loop it has seen, also a closed one


def greet(address: str, credentials: Credentials) -> None:
    hello(GrpcLink(address, credentials))


def hello(link: GrpcLink) -> None:
    """Connect as a site, say hello and hear the welcome."""

    async def main() -> None:
        stream = await link.connect()
        try:
            greeting: dict[str, Json] = {"name": "north", "consilia": CONSILIA, "wire": WIRE, "holds": {}}
            await stream.send(to_bytes(Hello(greeting)))
            assert isinstance(from_bytes(await stream.receive(), who="test"), Welcome)
        finally:
            await stream.close()

    RUNNER.run(main())


def said(address: str, credentials: Credentials, good: Credentials) -> str:
    """Return why somebody is not served, while a good site is, before and after."""
    greet(address, good)
    with pytest.raises(TransportError) as caught:
        greet(address, credentials)
    greet(address, good)
    return str(caught.value)


def with_certificate(
    world: World, name: str, *, role: Role | None = None, authority: Authority | None = None, begins: float = 0.0, days: int = 398
) -> Credentials:  # fmt: skip
    """Return a member's credentials with another certificate, such as an officer, or a thief of ca.key, can issue."""
    own, key = world.load(name), new_key()
    source = world.office.authority if authority is None else authority
    certificate = source.issue(name, role or own.role, key.public_key(), world.now + begins * DAY, days)
    entry = dataclasses.replace(own.entry, der=der(certificate))
    return dataclasses.replace(own, tls_key=key_pem(key), entry=entry)


def with_book(own: Credentials, book: Book) -> Credentials:
    """Return a member's credentials with another roster; no folder holds it."""
    return dataclasses.replace(own, folder=Path("nowhere"), book=book, entry=book.by_name.get(own.name, own.entry))


class TestASiteIsRefused:
    """Each kind of bad certificate of somebody who dials, at a coordinator in good standing."""

    def test_none(self, made: World, hub: str) -> None:
        north = made.load("north")
        greet(hub, north)
        made.join("west", "site")
        with pytest.raises(StoreError, match="needs the roster that the consortium signed; got none yet"):
            made.load(
                "west"
            )  # without a certificate nobody gets as far as dialling; and who dials otherwise is refused:
        bare = grpc.ssl_channel_credentials(north.trusted)
        with grpc.secure_channel(hub, bare, options=client_options("hub")) as channel:
            for method in (CONTROL, "Other"):
                with pytest.raises(grpc.RpcError) as failed:
                    channel.unary_unary(f"/{SERVICE}/{method}")(b"{}", timeout=5)
                assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
        greet(hub, north)

    def test_wrong_purpose(self, made: World, hub: str) -> None:
        text = said(hub, made.load("hub"), made.load("north"))  # the coordinator's own, posing as a site
        assert "the certificate of coordinator hub, which the coordinator at" in text

    def test_wrong_role(self, made: World, hub: str) -> None:
        text = said(hub, made.load("olga"), made.load("north"))
        assert "operator olga needs the role site for this; got operator" in text
        with pytest.raises(TransportError, match="needs the role operator for this; got site"):
            call(hub, made.load("north"), {})
        assert call(hub, made.load("olga"), {}) == {"you": "olga"}

    def test_expired(self, made: World, hub: str) -> None:
        text = said(hub, with_certificate(made, "south", begins=-10, days=5), made.load("north"))
        assert "got an expired one: it ended on" in text
        assert f"{made.now - 5 * DAY:%Y-%m-%d %H:%M} UTC" in text

    def test_not_yet_valid(self, made: World, hub: str) -> None:
        text = said(hub, with_certificate(made, "south", begins=3), made.load("north"))
        assert f"got one not yet valid: it begins on {made.now + 3 * DAY - SKEW:%Y-%m-%d %H:%M} UTC" in text
        assert "clocks" in text

    def test_another_consortium(self, made: World, hub: str) -> None:
        text = said(
            hub, with_certificate(made, "south", authority=Authority.create("other", made.now)), made.load("north")
        )
        assert "needs a certificate of consortium heart-study; got one of another authority" in text

    def test_off_the_roster(self, made: World, hub: str) -> None:
        own = with_certificate(made, "south")
        stray = made.entry("west", "site")
        west = dataclasses.replace(own, identity=dataclasses.replace(own.identity, name="west"))
        key = new_key()
        issued = made.office.authority.issue("west", "site", key.public_key(), made.now)
        west = dataclasses.replace(west, tls_key=key_pem(key), entry=dataclasses.replace(stray, der=der(issued)))
        text = said(hub, west, made.load("north"))
        assert (
            "the certificate of site west needs a member on version 2 of the roster; got one that is off the roster"
            in text
        )

    def test_revoked(self, made: World, tmp_path: Path) -> None:
        book = made.office.revoked("south", "its laptop was stolen", made.now)
        with serving(with_book(made.load("hub"), book), tmp_path) as (address, _):
            text = said(address, made.load("south"), made.load("north"))
        assert f"got one revoked on {made.now:%Y-%m-%d %H:%M} UTC: its laptop was stolen" in text

    def test_superseded(self, made: World, hub: str) -> None:
        text = said(hub, with_certificate(made, "south", begins=-1), made.load("north"))
        assert "got a superseded one: it was renewed since. Give that member the newest roster.json" in text


def test_renewed_at_both_ends_while_they_run(tmp_path: Path) -> None:
    """New certificates and a newer roster count without a restart; until they are everywhere, both ends say what is missing."""
    world = World.made(tmp_path, datetime.now(UTC).replace(microsecond=0) - DAY)
    hub, north = world.load("hub"), world.load("north")
    with serving(hub, tmp_path / "spool") as (address, server):
        link = GrpcLink(address, north)
        hello(link)
        world.now += DAY
        world.sign(*(member.renew(world.folder / name, name).request for name in ("hub", "north")))
        hello(link)  # signed, but not brought to anybody yet
        world.take("north")
        with pytest.raises(TransportError, match="a superseded one: it was renewed since"):
            hello(link)  # the coordinator has the old roster still
        world.take("hub")
        server.reload(hub.refreshed())
        hello(link)
        with pytest.raises(TransportError, match="got a newer one"):
            hello(GrpcLink(address, with_book(world.load("olga"), north.book)))


def test_an_open_stream_outlives_the_coordinator_s_renewal(tmp_path: Path) -> None:
    """A site that has not got the newer roster would not come back: it stays in the run it is in."""
    world = World.made(tmp_path, datetime.now(UTC).replace(microsecond=0) - DAY)
    hub, north, south = (world.load(name) for name in ("hub", "north", "south"))
    greeting: dict[str, Json] = {"name": "north", "consilia": CONSILIA, "wire": WIRE, "holds": {}}

    async def main(address: str, server: GrpcServer) -> None:
        stream = await GrpcLink(address, north).connect()
        world.now += DAY
        world.sign(member.renew(world.folder / "hub", "hub").request)
        world.take("hub")
        await asyncio.to_thread(server.reload, hub.refreshed())
        await stream.send(to_bytes(Hello(greeting)))
        assert isinstance(from_bytes(await stream.receive(), who="test"), Welcome)
        with pytest.raises(TransportError):
            await GrpcLink(address, with_book(south, north.book)).connect()  # comes now, without the newer roster
        world.take("south")
        late = await GrpcLink(address, world.load("south")).connect()
        await late.close()
        # Thrown out meanwhile, the old stream ends as any other.
        gone = world.office.revoked("north", "its laptop was stolen", world.now)
        await asyncio.to_thread(server.reload, with_book(world.load("hub"), gone))
        with pytest.raises(TransportError, match="its laptop was stolen"):
            async with asyncio.timeout(10):
                await stream.receive()
        await stream.close()

    with serving(hub, tmp_path / "spool") as (address, server):
        RUNNER.run(main(address, server))


def test_a_revocation_does_not_wait_for_the_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the port cannot be had again the roster counts all the same, and the next look listens."""
    world = World.made(tmp_path, datetime.now(UTC).replace(microsecond=0) - DAY)
    hub, north = world.load("hub"), world.load("north")

    async def main(address: str, server: GrpcServer) -> None:
        stream = await GrpcLink(address, north).connect()
        world.now += DAY
        world.sign(member.renew(world.folder / "hub", "hub").request)
        world.take("hub")
        gone = with_book(world.load("hub"), world.office.revoked("north", "its laptop was stolen", world.now))
        with monkeypatch.context() as taken:
            taken.setattr(GrpcServer, "_listen", refuse)
            taken.setattr("consilia.transport.grpc.server._ATTEMPTS", 1)
            with pytest.raises(TransportError, match="to listen at port"):
                await asyncio.to_thread(server.reload, gone)
        with pytest.raises(TransportError, match="its laptop was stolen"):
            async with asyncio.timeout(10):
                await stream.receive()
        await stream.close()
        await asyncio.to_thread(server.reload, gone)
        world.take("south")
        late = await GrpcLink(address, world.load("south")).connect()
        await late.close()

    async def refuse(_self: GrpcServer, _address: str) -> int:
        raise RuntimeError

    with serving(hub, tmp_path / "spool") as (address, server):
        RUNNER.run(main(address, server))


def test_an_open_stream_of_a_revoked_site_ends_and_the_others_go_on(made: World, tmp_path: Path) -> None:
    book = made.office.revoked("south", "its laptop was stolen", made.now)

    async def main(address: str, server: GrpcServer) -> None:
        north, south = [await GrpcLink(address, made.load(name)).connect() for name in ("north", "south")]
        await asyncio.to_thread(server.reload, with_book(made.load("hub"), book))
        with pytest.raises(TransportError, match="its laptop was stolen"):
            async with asyncio.timeout(10):
                await south.receive()
        greeting: dict[str, Json] = {"name": "north", "consilia": CONSILIA, "wire": WIRE, "holds": {}}
        await north.send(to_bytes(Hello(greeting)))
        assert isinstance(from_bytes(await north.receive(), who="test"), Welcome)
        await north.close()
        await south.close()

    with serving(made.load("hub"), tmp_path) as (address, server):
        RUNNER.run(main(address, server))


def test_a_site_leaves_a_coordinator_that_was_revoked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever holds the coordinator's stolen keys keeps no stream: the roster in the site's folder ends it."""
    monkeypatch.setattr(newest, "LOOK", 0.0)
    world = World.made(tmp_path, datetime.now(UTC).replace(microsecond=0))
    greeting: dict[str, Json] = {"name": "north", "consilia": CONSILIA, "wire": WIRE, "holds": {}}

    async def main(address: str) -> None:
        stream = await GrpcLink(address, world.load("north")).connect()
        await stream.send(to_bytes(Hello(greeting)))
        world.revoke("hub", "its keys were stolen")
        world.sign(world.join("new hub", "coordinator"))
        world.take("north")
        with pytest.raises(TransportError, match="needs certificates of the newest roster; got those of version 2"):
            await stream.send(b"a heartbeat, say")
        await stream.close()

    with serving(world.load("hub"), tmp_path / "spool") as (address, _):
        RUNNER.run(main(address))
        with pytest.raises(TransportError, match="its keys were stolen"):
            greet(address, world.load("north"))


class TestACoordinatorIsRefused:
    """Each kind of bad certificate of who is dialled; a site sends it nothing."""

    @pytest.fixture
    def refused(self, made: World, tmp_path: Path) -> Callable[..., str]:
        """Start a coordinator, dial it as a site and return why the site does not go on."""

        def run(coordinator: Credentials, site: Credentials | None = None) -> str:
            with serving(coordinator, tmp_path) as (address, _):
                with pytest.raises(TransportError) as caught:
                    greet(address, made.load("north") if site is None else site)
                with pytest.raises(TransportError) as again:
                    call(address, with_book(made.load("olga"), (site or made.load("north")).book), {})
            assert str(again.value) == str(caught.value)
            return str(caught.value)

        return run

    @pytest.mark.parametrize("name", ["south", "olga", "north"])
    def test_another_member_posing_as_the_coordinator(
        self, made: World, refused: Callable[..., str], name: str
    ) -> None:
        text = refused(made.load(name))
        assert f"the certificate of {made.load(name).role} {name} at 127.0.0.1:" in text
        assert "to be for the coordinator, which is dialled; got the wrong purpose" in text

    def test_another_consortium(self, made: World, refused: Callable[..., str]) -> None:
        text = refused(with_certificate(made, "hub", authority=Authority.create("heart-study", made.now)))
        assert "needs a certificate of consortium heart-study; got one of another authority" in text

    def test_off_the_roster(self, made: World, refused: Callable[..., str]) -> None:
        """Whoever stole ca.key issues a coordinator's certificate: for the same name, or for another one."""
        text = refused(with_certificate(made, "hub", begins=1e-3))
        assert "got a newer one. Give this end the newest roster.json" in text
        own = with_certificate(made, "hub")
        key = new_key()
        issued = made.office.authority.issue("hub2", "coordinator", key.public_key(), made.now)
        entry = dataclasses.replace(own.entry, name="hub2", der=der(issued))
        assert "got one that is off the roster" in refused(dataclasses.replace(own, tls_key=key_pem(key), entry=entry))

    def test_superseded(self, made: World, refused: Callable[..., str]) -> None:
        assert "got a superseded one" in refused(with_certificate(made, "hub", begins=-1))

    def test_revoked(self, made: World, refused: Callable[..., str]) -> None:
        hub, north = made.load("hub"), made.load("north")
        revoked = made.office.revoked("hub", "its disk was sold", made.now).revoked
        fresh = made.entry("hub", "coordinator")  # the name is in use again, with other keys
        members = [fresh if one.name == "hub" else one for one in made.book.members]
        text = refused(hub, with_book(north, made.signed(members=members, revoked=revoked)))
        assert "UTC: its disk was sold" in text

    @pytest.mark.parametrize(
        ("begins", "days", "says"), [(-10, 5, "got an expired one"), (3, 398, "got one not yet valid")]
    )
    def test_dates(self, made: World, refused: Callable[..., str], begins: float, days: int, says: str) -> None:
        """The roster's own certificate: only its time is wrong."""
        hub = with_certificate(made, "hub", begins=begins, days=days)
        members = [hub.entry if one.name == "hub" else one for one in made.book.members]
        book = made.signed(members=members)
        text = refused(with_book(hub, book), with_book(made.load("north"), book))
        assert says in text
        assert len(text.splitlines()) == 1

    def test_nobody(self, made: World) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            free = server.getsockname()[1]
        with pytest.raises(TransportError, match=f"needs a coordinator at 127.0.0.1:{free}; got connection refused"):
            greet(f"127.0.0.1:{free}", made.load("north"))
