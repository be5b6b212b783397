"""Over HTTPS, too, new certificates and a newer roster count without a restart."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.transport.longpoll.stage import Stage, until

from consilia.transport.credentials import member, newest
from consilia.transport.longpoll.client import LongPoll


def test_both_ends_renew_while_they_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest, "LOOK", 0.05)
    stage = Stage(tmp_path)
    try:
        world = stage.world
        hub, old = world.load("hub"), world.load("north")
        with stage.site("north", LongPoll(stage.address, old)):
            until(stage.connected)
            assert stage.ask(b"one") == [b"re one"]
            world.now = datetime.now(UTC).replace(microsecond=0)
            world.sign(*(member.renew(world.folder / name, name).request for name in ("hub", "north")))
            for name in ("hub", "north"):
                world.take(name)
            assert world.load("north").trusted != old.trusted
            stage.server.reload(hub.refreshed())
            assert stage.ask(b"two") == [b"re two"]
        with stage.site(
            "north", LongPoll(stage.address, old)
        ):  # what it was started with is no longer good for anything
            until(stage.connected)
            assert stage.ask(b"three") == [b"re three"]
    finally:
        stage.close()
