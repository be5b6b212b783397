"""P11. A crash makes no site use a mask, a nonce or noise again for other data: after it randomness is fresh, and who has
forgotten what it said says nothing more.
"""

from pathlib import Path

import pytest
from tests.promises.fleet import Case
from tests.promises.scenes import calm, killed

from consilia.core.update import ProtocolMessage
from consilia.core.wire import decode
from consilia.rounds.entropy import Entropy


def test_the_system_s_randomness_is_fresh_for_the_same_purpose() -> None:
    keys = {Entropy().stream("train", "Arnhem", 1).token(32) for _ in range(64)}
    assert len(keys) == 64


@pytest.mark.parametrize("mode", ["dp", "masks", "masks-dp"])
def test_kills_make_nothing_come_twice(mode: str, place: Path, shelf: Path) -> None:
    """The oracle holds every key in adverts, every masked vector of a round and every key of noise against the others."""
    for seed in range(6):
        calm(Case(mode), place / str(seed), shelf, {"kill site": 0.04, "kill coordinator": 0.06}, seed).run()


@pytest.mark.parametrize("point", ["session.keep.written", "session.keep.committed", "site.after_commit"])
def test_killed_in_a_sum_a_site_is_in_it_once_or_not_at_all(point: str, place: Path) -> None:
    report = killed("secure+dp", "Cork", point, 3 if point.startswith("session") else 2, place)
    assert (report["fault"], report["violation"]) == ("", "")
    assert report["killed"] == {"Cork": 1}


@pytest.mark.parametrize("stage", ["begin", "survivors", "votes"])
def test_a_step_that_comes_after_the_end_finds_no_secrets(
    stage: str, place: Path, shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = calm(Case("masks-dp"), place, shelf)
    send, ended, late = world.network.send, world.oracle.ended, list[tuple[str, bytes]]()

    def noted(site: str, frame: bytes) -> None:
        task = decode(frame, who="test")
        assert isinstance(task, ProtocolMessage)
        if (task.body.get("stage"), task.round) == (stage, 3):
            late.append((site, frame))
        send(site, frame)

    def again(now: float) -> None:
        answers = [decode(world.handle(site, frame) or b"", who="test") for site, frame in late]
        assert [getattr(answer, "kind", "") for answer in answers] == ["refused"] * 4
        ended(now)  # no site keeps the secrets of a sum

    monkeypatch.setattr(world.network, "send", noted)
    monkeypatch.setattr(world.oracle, "ended", again)
    world.run()
