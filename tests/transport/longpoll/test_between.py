"""What stands between may read; it changes, repeats and invents nothing that either end takes."""

import asyncio
import http.client
import json
import ssl
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.transport.longpoll.proxies import Hand, InspectingProxy, Message
from tests.transport.longpoll.stage import Stage, until

from consilia.core.errors import TransportError
from consilia.transport.longpoll.client import LongPoll
from consilia.transport.longpoll.server import DOWN, OPEN, SIGNATURE, UP


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    one = Stage(tmp_path)
    yield one
    one.close()


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[InspectingProxy]:
    with InspectingProxy(tmp_path) as one:
        yield one


def refusal(link: LongPoll) -> str:
    async def connect() -> None:
        stream = await link.connect()
        await stream.close()

    with pytest.raises(TransportError) as caught:
        asyncio.run(connect())
    return str(caught.value)


def flipped(body: bytes) -> bytes:
    return body[:-1] + bytes([body[-1] ^ 1]) if body else b"x"


def to(path: str) -> Callable[[Message], bool]:
    return lambda message: path.encode() in message.first


def test_an_inspecting_proxy_is_passed_where_it_is_trusted_and_named_where_not(
    stage: Stage, proxy: InspectingProxy
) -> None:
    own = stage.world.load("north")
    assert 'If a proxy inspects what passes, set "trust"' in refusal(LongPoll(stage.address, own, proxy=proxy.url))
    with stage.site("north", LongPoll(stage.address, own, proxy=proxy.url, trust=proxy.trust)):
        frame = bytes(range(256)) * 8000
        assert stage.ask(frame) == [b"re " + frame]
    assert any(b"re \0\1\2" in message.body for message in proxy.hand.seen)  # it reads what passes, as is said


@pytest.mark.parametrize("path", [OPEN, UP, DOWN])
def test_a_request_that_is_changed_on_its_way_is_refused(stage: Stage, proxy: InspectingProxy, path: str) -> None:
    heard: list[bytes] = []

    def change(message: Message) -> Message:
        if not to(path)(message):
            return message
        if path == DOWN:
            return replace(message, first=message.first.replace(DOWN.encode(), DOWN.encode() + b"?x=1"))
        return replace(message, body=flipped(message.body))

    proxy.hand = Hand(request=change)
    link = LongPoll(stage.address, stage.world.load("north"), proxy=proxy.url, trust=proxy.trust)
    with stage.site("north", link, lambda frame: heard.append(bytes(frame)) or b"no"):  # type: ignore[func-returns-value]
        until(lambda: sum(map(to(path), proxy.hand.seen)) >= 3)
        assert stage.ask(b"never heard", timeout=0.3) in (["no answer before the deadline"], ["not connected"])
    assert heard == []


def test_a_request_signed_for_one_way_does_not_go_another(stage: Stage, proxy: InspectingProxy) -> None:
    def turn(message: Message) -> Message:
        return replace(message, first=message.first.replace(UP.encode(), b"/consilia/1/end"))

    proxy.hand = Hand(request=turn)
    said: list[str] = []

    async def greet() -> None:
        link = LongPoll(stage.address, stage.world.load("north"), proxy=proxy.url, trust=proxy.trust)
        stream = await link.connect()
        try:
            await stream.send(b"hello")
            await stream.receive()
        except TransportError as error:
            said.append(str(error))
        finally:
            await stream.close()

    asyncio.run(greet())
    assert "needs answers that hub has signed" in said[0]  # even the refusal answers another request than was sent


@pytest.mark.parametrize(
    "change",
    [
        lambda answer: replace(answer, body=flipped(answer.body)),
        lambda answer: replace(answer, body=answer.body + b"\0\0\0\0"),
        lambda answer: replace(answer, first=answer.first.replace(b"200 OK", b"202 Accepted")),
        lambda answer: replace(answer, headers=[one for one in answer.headers if one[0] != SIGNATURE.encode()]),
        lambda answer: Message(b"HTTP/1.1 200 OK", [], b"<html>blocked by policy</html>"),
        lambda answer: Message(b"HTTP/1.1 302 Found", [(b"Location", b"https://127.0.0.1:1/login")], b""),
    ],
    ids=["another body", "a longer body", "another status", "no signature", "a page", "a login"],
)
@pytest.mark.parametrize("path", [OPEN, DOWN])
def test_an_answer_that_is_changed_on_its_way_is_not_taken(
    stage: Stage, proxy: InspectingProxy, path: str, change: Callable[[Message], Message]
) -> None:
    proxy.hand = Hand(answer=lambda request, answer: change(answer) if to(path)(request) else answer)
    own = stage.world.load("north")
    link = LongPoll(stage.address, own, proxy=proxy.url, trust=proxy.trust)
    said = refusal(link) if path == OPEN else asyncio.run(_first_packet(link))
    assert "needs answers that hub has signed" in said
    assert "Something on the way answers in its place or changes what passes" in said


async def _first_packet(link: LongPoll) -> str:
    stream = await link.connect()
    try:
        await stream.send(b"\x01\x01" + bytes(6) + json.dumps({"name": "north", "wire": 1, "holds": {}}).encode())
        await stream.receive()
    except TransportError as error:
        return str(error)
    finally:
        await stream.close()
    return ""


def test_an_answer_of_another_request_is_not_taken(stage: Stage, proxy: InspectingProxy) -> None:
    kept: list[Message] = []

    def swap(request: Message, answer: Message) -> Message:
        if to(DOWN)(request):
            kept.append(answer)
        return kept[0] if to(DOWN)(request) else answer

    proxy.hand = Hand(answer=swap)
    link = LongPoll(stage.address, stage.world.load("north"), proxy=proxy.url, trust=proxy.trust)
    with stage.site("north", link):
        until(lambda: len(kept) > 3)
        # The first answer, which is the greeting, was taken in its place; every later one is the greeting again: not taken.
        assert stage.ask(b"x", timeout=0.5) in (["no answer before the deadline"], ["connection lost 0 s ago"])


def test_recorded_requests_are_refused(stage: Stage, proxy: InspectingProxy) -> None:
    with stage.site("north", LongPoll(stage.address, stage.world.load("north"), proxy=proxy.url, trust=proxy.trust)):
        assert stage.ask(b"one") == [b"re one"]
        port, seen = stage.server.port, list(proxy.hand.seen)
        up = stage.hub.sites()["north"].counts
        for message in seen:
            answer = proxy.again(message, port)
            if to(OPEN)(message):  # opens a session that only the site could use
                assert b" 200 " in answer.first
            else:
                assert b" 403 " in answer.first
                assert b"sent before" in answer.body
        assert len(seen) > 4
        after = stage.hub.sites()["north"].counts
        assert up.get("repeated", 0) == after.get("repeated", 0) == 0
        assert stage.ask(b"two") == [b"re two"]  # and the site has noticed nothing
    for message in seen:
        if not to(OPEN)(message):
            assert b"never opened" in proxy.again(message, port).body


def test_who_does_not_count_is_told_why(stage: Stage) -> None:
    world = stage.world
    own = world.load("north")
    stranger = replace(own, identity=world.load("south").identity)
    said = refusal(LongPoll(stage.address, replace(stranger, entry=own.entry)))
    assert "needs the certificate of south, or none; got another member's" in said
    book = world.revoke("north", "the study has ended there")
    stage.server.reload(replace(world.load("hub"), book=book))
    said = refusal(LongPoll(stage.address, own))
    assert "site north needs to be a member in good standing; got one revoked on" in said
    assert "the study has ended there" in said


def test_a_member_that_is_thrown_out_in_the_middle_is_cut_off(stage: Stage) -> None:
    with stage.site("north", LongPoll(stage.address, stage.world.load("north"))):
        assert stage.ask(b"one") == [b"re one"]
        stage.server.reload(replace(stage.world.load("hub"), book=stage.world.revoke("north")))
        until(lambda: not stage.connected())


def test_a_certificate_that_has_ended_counts_no_more(stage: Stage, proxy: InspectingProxy) -> None:
    world = stage.world
    own = world.load("north")
    ended = world.entry("north", "site", now=datetime.now(UTC) - timedelta(days=500))
    members = [replace(one, der=ended.der) if one.name == "north" else one for one in world.book.members]
    stage.server.reload(replace(world.load("hub"), book=world.signed(members=members)))
    # Behind this proxy no certificate is shown: the roster's own one decides.
    said = refusal(LongPoll(stage.address, own, proxy=proxy.url, trust=proxy.trust))
    assert "the certificate of site north needs to be valid today; got an expired one: it ended on" in said


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/", {}), ("GET", DOWN, {}), ("POST", OPEN, {"Consilia-Session": "zz"}),
        ("POST", OPEN, {"Consilia-Session": "00" * 32, "Consilia-Number": "one", SIGNATURE: "00"}),
        ("POST", OPEN, {"Consilia-Session": "00" * 32, "Consilia-Number": "0", SIGNATURE: "00" * 64}),
        ("POST", UP, {"Consilia-Session": "00" * 32, "Consilia-Number": "-5", SIGNATURE: "00" * 64}),
        ("PUT", UP, {}),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "body", [b"", b"rubbish", b'{"site": "north"}', b'{"site": 3}', b'{"site": "nobody"}', b"[" * 50_000]
)
def test_rubbish_is_refused(stage: Stage, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
    context = ssl.create_default_context(cadata=stage.world.load("north").ca.decode())
    context.check_hostname = False
    calls = http.client.HTTPSConnection("127.0.0.1", stage.server.port, context=context, timeout=5)
    try:
        calls.request(method, path, body, headers)
        assert 400 <= calls.getresponse().status < 500
    finally:
        calls.close()
