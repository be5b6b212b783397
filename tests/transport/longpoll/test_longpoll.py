"""Frames pass by HTTPS requests as they do by streams, through what hospitals have on the way."""

import asyncio
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.proxy import FaultProxy
from tests.transport.longpoll.proxies import ConnectProxy
from tests.transport.longpoll.stage import Stage, until

from consilia.core.errors import PlanError, TransportError
from consilia.transport.longpoll.client import LongPoll


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    one = Stage(tmp_path)
    yield one
    one.close()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


def refusal(link: LongPoll) -> str:
    """Return why a link cannot be opened."""

    async def connect() -> None:
        stream = await link.connect()
        await stream.close()

    with pytest.raises(TransportError) as caught:
        asyncio.run(connect())
    return str(caught.value)


def test_frames_there_and_answers_back(stage: Stage) -> None:
    with stage.site("north", LongPoll(stage.address, stage.world.load("north"))):
        assert stage.ask(b"one", b"two") == [b"re one", b"re two"]
        large = os.urandom(5_000_000)
        assert stage.ask(large) == [b"re " + large]
        assert stage.connected()
    until(lambda: not stage.connected())  # it said goodbye: nobody waits for heartbeats to stay away


def test_a_quiet_line_stays_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(tmp_path, wait=0.05)  # many requests end without a packet
    try:
        with stage.site("north", LongPoll(stage.address, stage.world.load("north"))):
            assert stage.ask(b"there?") == [b"re there?"]
            since = stage.hub.sites()["north"].counts["down"]
            until(lambda: stage.hub.sites()["north"].counts["down"] > since + 16)  # two heartbeats
            assert stage.ask(b"still there?") == [b"re still there?"]
    finally:
        stage.close()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_site_comes_back_to_a_coordinator_that_was_away(stage: Stage) -> None:
    own = stage.world.load("north")
    with FaultProxy(stage.server.port) as line, stage.site("north", LongPoll(f"127.0.0.1:{line.port}", own)):
        assert stage.ask(b"one") == [b"re one"]
        line.refuse = True
        line.reset()
        until(lambda: not stage.connected())
        line.refuse = False
        until(stage.connected)
        assert stage.ask(b"two") == [b"re two"]


def test_an_upload_goes_on_where_it_broke_off(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    frame = os.urandom(3_000_000)
    with FaultProxy(stage.server.port) as line:
        line.up.cut_at = 1_500_000
        with stage.site("north", LongPoll(f"127.0.0.1:{line.port}", stage.world.load("north")), lambda _: frame):
            assert stage.ask(b"send it") == [frame]
        # What had come was not sent again, but for what was on its way when the line broke.
        assert line.up.passed < 3_000_000 + 1_200_000
    assert len([record for record in caplog.records if "It is tried again" in record.getMessage()]) == 1
    assert not [record for record in caplog.records if "version" in record.getMessage()]


def test_through_a_proxy_that_passes_tunnels_on(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    with ConnectProxy() as proxy:
        proxy.login = "ward:7"
        own = stage.world.load("north")
        with stage.site("north", LongPoll(stage.address, own, proxy=proxy.url)):
            assert stage.ask(b"one") == [b"re one"]
        assert set(proxy.tunnels) == {stage.address}
        proxy.tunnels.clear()
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        with stage.site("south", LongPoll(stage.address, stage.world.load("south"))):
            assert stage.ask(b"two", site="south") == [b"re two"]
        assert proxy.tunnels
        proxy.tunnels.clear()
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        with stage.site("south", LongPoll(stage.address, stage.world.load("south"))):
            assert stage.ask(b"three", site="south") == [b"re three"]
        assert not proxy.tunnels


def test_what_a_proxy_says_instead_is_passed_on(stage: Stage) -> None:
    own = stage.world.load("north")
    with ConnectProxy() as proxy:
        proxy.refuses = True
        assert "got HTTP status 403 (Forbidden) from it" in refusal(LongPoll(stage.address, own, proxy=proxy.url))
        proxy.login = "ward:7"
        open_url = proxy.url.replace("ward:7@", "")
        said = refusal(LongPoll(stage.address, own, proxy=open_url))
        assert "got HTTP status 407 (Proxy Authentication Required) from it" in said
        assert 'Check the setting "proxy"' in said
    assert "needs an answer; got Cannot connect" in refusal(LongPoll(stage.address, own, proxy=proxy.url))
    said = refusal(LongPoll(stage.address, own, proxy="not a url"))
    assert said.startswith(f"the way to https://{stage.address} needs")


def test_a_file_to_trust_that_holds_nothing(stage: Stage, tmp_path: Path) -> None:
    link = LongPoll(stage.address, stage.world.load("north"), trust=tmp_path / "missing.pem")
    with pytest.raises(PlanError, match="needs the certificate of the proxy's authority"):
        asyncio.run(link.connect())
