"""What a site was sent and agreed to, killed at every point and used by two processes at once."""

import os
import signal
from pathlib import Path

import pytest
from tests.store.forked import killed_at

from consilia.core.errors import ProtocolError, StoreError
from consilia.store.inbox import ANSWERS
from consilia.store.ledger_store import SiteStore

MESSAGES = 7
PLACES = [
    f"{name}.{where}:{turn}"
    for name, turns in (
        ("inbox.begin", (1, 3, MESSAGES)), ("inbox.keep", (1, 3, MESSAGES)), ("consent.note", (1, 2)), ("consent.close", (1,)),
        ("consent.approve", (1,)), ("consent.withdraw", (1,)),
    )
    for where in ("before", "written", "committed")
    for turn in turns
]  # fmt: skip


def message(number: int) -> tuple[bytes, bytes]:
    return b"id %013d" % number, b"digest of %022d" % number


def site(folder: Path) -> None:
    """Answer seven messages, and agree to a run; from wherever the file stands."""
    with SiteStore.open(folder / "a.sqlite", "A") as store:
        for number in range(1, MESSAGES + 1):
            id, digest = message(number)
            try:
                answer = store.inbox.seen(id, digest)
            except ProtocolError:
                continue  # answered long ago
            if answer is None:
                store.inbox.begin(id, digest)
                answer = os.urandom(16)  # another one each time: a repeated answer is seen
                store.inbox.keep(id, answer)
            with (folder / "sent").open("a") as file:
                file.write(f"{number} {answer.hex()}\n")
                file.flush()
                os.fsync(file.fileno())
        if store.consents.accepted("run") is None and not any(one.answer == "done" for one in store.consents.all()):
            store.consents.note("run", "d", "waiting", b"offer", ["a steward"])
            store.consents.approve("d")
            store.consents.approve("other")
            store.consents.withdraw("other")
            store.consents.note("run", "d", "accepted", b"offer")
        store.consents.close("run", "done")


@pytest.mark.parametrize("place", PLACES)
def test_after_a_kill_no_message_is_answered_twice_and_no_word_is_lost(tmp_path: Path, place: str) -> None:
    assert killed_at(place, lambda: site(tmp_path)) == -signal.SIGKILL
    assert killed_at("", lambda: site(tmp_path)) == 0
    sent = [line.split() for line in (tmp_path / "sent").read_text().splitlines()]
    assert {int(number) for number, _ in sent} == set(range(1, MESSAGES + 1))
    assert len({tuple(line) for line in sent}) == MESSAGES  # what was sent again was the same
    with SiteStore.open(tmp_path / "a.sqlite", "A") as store:
        (one,) = store.consents.all()
        assert (one.run, one.digest, one.answer, one.offer) == ("run", "d", "done", b"offer")
        assert store.consents.accepted("run") is None
        assert store.consents.approved() == {"d"}


def test_answers_of_the_newest_messages_are_kept_and_what_all_were(tmp_path: Path) -> None:
    site(tmp_path)
    with SiteStore.open(tmp_path / "a.sqlite", "A") as store:
        for number in range(1, MESSAGES + 1):
            id, digest = message(number)
            if number > MESSAGES - ANSWERS:
                assert store.inbox.seen(id, digest) is not None
            else:
                with pytest.raises(ProtocolError, match="answered long ago"):
                    store.inbox.seen(id, digest)
            with pytest.raises(ProtocolError, match="other bytes under it"):
                store.inbox.seen(id, b"another digest")
        store.inbox.begin(b"new", b"d")
        store.inbox.begin(b"new", b"d")
        assert store.inbox.seen(b"new", b"d") is None


def test_a_run_keeps_the_plan_that_was_agreed_to(tmp_path: Path) -> None:
    with SiteStore.open(tmp_path / "a.sqlite", "A") as store:
        store.consents.note("run", "d", "refused", b"offer", ["privacy.max_epsilon_run: 1.0; the plan asks 3.0"])
        assert store.consents.accepted("run") is None
        store.consents.note("run", "e", "accepted", b"offer 2")
        store.consents.note("run", "e", "accepted", b"offer 2")
        for digest, answer, offer in (
            ("d", "accepted", b"offer"),
            ("e", "refused", b"offer 2"),
            ("e", "accepted", b""),
        ):
            with pytest.raises(StoreError, match="one of a run that was agreed to"):
                store.consents.note("run", digest, answer, offer)
        assert store.consents.accepted("run") == b"offer 2"
        store.consents.close("run", "stopped")
        store.consents.close("run", "done")
        with pytest.raises(StoreError, match="one of a run that was agreed to"):
            store.consents.note("run", "e", "accepted", b"offer 2")
        assert [one.answer for one in store.consents.all()] == ["stopped"]


def test_a_steward_and_the_site_use_one_file_at_once(tmp_path: Path) -> None:
    """Approvals by another process count at once, and neither loses what the other writes."""
    path, plans = tmp_path / "a.sqlite", 20

    def steward() -> None:
        with SiteStore.open(path, "A") as store:
            for number in range(plans):
                store.consents.approve(f"plan {number}")

    with SiteStore.open(path, "A") as store:
        child = os.fork()
        if child == 0:
            os._exit(killed_at("", steward))
        for number in range(plans):
            store.consents.note(f"run {number}", f"plan {number}", "waiting", b"offer")
            store.inbox.begin(b"%d" % number, b"d")
            store.inbox.keep(b"%d" % number, b"answer")
        assert os.waitpid(child, 0)[1] == 0
        assert store.consents.approved() == {f"plan {number}" for number in range(plans)}
        assert len(store.consents.all()) == plans
