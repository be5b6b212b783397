"""`consilia roster`: every step says what comes next, asks before it counts, and never shows a key."""

import io
import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Outcome
from tests.transport.credentials.world import World

from consilia.transport.credentials.credentials import Credentials

Call = Callable[..., Outcome]
DAY = timedelta(days=1)


@pytest.fixture
def roster(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Call]:
    """Call `consilia roster`; with `said`, that is typed at its questions. No output may hold a key."""
    shown: list[str] = []

    def run(*arguments: str, said: str = "") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.StringIO(said))
        outcome = call("roster", *arguments)
        shown.append(outcome.out + outcome.err)
        return outcome

    yield run
    assert shown
    for path in tmp_path.rglob("*.key"):
        for word in path.read_text().replace('"', " ").split():
            assert len(word) < 30 or not any(word in text for text in shown), path


@pytest.fixture
def signed(roster: Call) -> Call:
    """A consortium with a coordinator and a site that have the roster, and a site that was signed."""
    roster("init", "consortium", "--name", "heart-study")
    for name, role in (("hub", "coordinator"), ("north", "site"), ("south", "site")):
        roster("add", name, "--role", role)
    requests = [f"{name}/{name}.request.json" for name in ("hub", "north", "south")]
    assert roster("sign", *requests, "--yes").code == 0
    for name in ("hub", "north"):
        assert roster("add", name, "--roster", "consortium/roster.json", "--yes").code == 0
    return roster


def fingerprint(text: str) -> str:
    return next(line.split("  ")[-1] for line in text.splitlines() if line.startswith("fingerprint"))


def test_from_nothing_to_a_member_by_what_each_command_says_comes_next(roster: Call) -> None:
    first = roster("init", "consortium", "--name", "heart-study")
    assert "Next, at each member: consilia roster add NAME --role site" in first.out
    second = roster("add", "hospital a", "--role", "site")
    assert "Next: send hospital a/hospital a.request.json to the consortium's officer. It is public." in second.out
    then = next(line for line in second.out.splitlines() if line.startswith("With the roster.json"))
    third = roster("sign", "hospital a/hospital a.request.json", said="y\n")
    assert "site         hospital a (new)" in third.err
    assert fingerprint(third.err) == fingerprint(second.out)  # what is compared by telephone
    assert "Next: send consortium/roster.json to the coordinator and to every member. It is public." in third.out
    words = shlex.split(then.split(": ")[1])
    assert words[:2] == ["consilia", "roster"]
    Path("roster.json").write_bytes(Path("consortium/roster.json").read_bytes())  # the mail
    last = roster(*words[2:], said="yes\n")
    assert fingerprint(last.err) == fingerprint(first.out)
    assert "roster       version 2 of heart-study, in hospital a" in last.out
    assert "Next: consilia site init --config 'hospital a/site.toml' --coordinator HOST:PORT" in last.out
    assert Credentials.load(Path("hospital a")).book.version == 2
    Path("hospital a/site.toml").write_text("")
    assert "Next" not in roster(*words[2:]).out


@pytest.mark.parametrize("said", ["", "n\n", "\n", "yeah\n", "no"])
def test_without_a_yes_nothing_happens(roster: Call, said: str) -> None:
    roster("init", "consortium")
    roster("add", "north", "--role", "site")
    before = tree()
    outcome = roster("sign", "north/north.request.json", "--json", said=said)
    assert outcome.code == 2
    assert outcome.problems[0]["needs"] == "a yes"
    assert tree() == before
    roster("sign", "north/north.request.json", "--yes")
    before = tree()
    assert roster("add", "north", "--roster", "consortium/roster.json", said=said).code == 2
    assert roster("revoke", "north", "--reason", "left", said=said).code == 2
    changed = {path for path, content in tree().items() if before.get(path) != content}
    assert changed <= {Path("consortium/roster.seen")}


def tree() -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}


def test_everything_as_json(roster: Call) -> None:
    founded = roster("init", "consortium", "--name", "heart-study", "--json").document
    assert founded["consortium"] == "heart-study"
    asked = roster("add", "hub", "--role", "coordinator", "--json").document
    assert asked == {"name": "hub", "role": "coordinator", "request": "hub/hub.request.json",
                     "fingerprint": asked["fingerprint"]}  # fmt: skip
    published = roster("sign", "hub/hub.request.json", "--yes", "--json").document
    assert published == {"consortium": "heart-study", "version": 2, "members": 1, "signed": ["hub"],
                         "roster": "consortium/roster.json", "fingerprint": founded["fingerprint"]}  # fmt: skip
    taken = roster("add", "hub", "--roster", "consortium/roster.json", "--yes", "--json").document
    assert (taken["name"], taken["role"], taken["version"]) == ("hub", "coordinator", 2)
    renewal = roster("renew", "hub", "--json").document
    assert renewal["request"] == "hub/hub.renewal.json"
    shown = roster("show", "hub", "--json").document
    assert [one["name"] for one in shown["members"]] == ["hub"]
    assert shown["members"][0]["days"] in (397, 398)
    assert (shown["trusted"], shown["revoked"]) == (True, [])
    gone = roster("revoke", "hub", "--reason", "replaced", "--yes", "--json").document
    assert (gone["version"], gone["members"], gone["signed"]) == (3, 0, [])


def test_renewal(signed: Call) -> None:
    old = Credentials.load(Path("north"))
    first = signed("renew", "north")
    assert "send north/north.renewal.json" in first.out
    assert signed("renew", "north").out == first.out  # asked again, the same request
    done = signed("sign", "north/north.renewal.json", said="y\n")
    assert "site         north (renewal)" in done.err
    assert Credentials.load(Path("north")).tls_key == old.tls_key
    assert signed("add", "north", "--roster", "consortium/roster.json").code == 0  # the key is pinned: no question
    assert Credentials.load(Path("north")).tls_key != old.tls_key
    assert signed("sign", "north/north.request.json", "--yes", "--json").code == 5  # the first request, once more


def test_revocation(signed: Call) -> None:
    done = signed("revoke", "south", "--reason", "its laptop was stolen", said="y\n")
    assert "site         south, for good: its laptop was stolen" in done.err
    assert "version 3 of heart-study, 2 members" in done.out
    late = signed("add", "south", "--roster", "consortium/roster.json", "--yes", "--json")
    assert late.code == 5
    assert "its laptop was stolen" in late.problems[0]["got"]
    shown = signed("show", "consortium")
    assert "site south: its laptop was stolen" in shown.out


def test_show(signed: Call) -> None:
    assert "hub" in signed("show", "north").out
    waiting = signed("show", "south")  # signed, but it has not got the roster
    assert "site         south, which no roster has yet" in waiting.out
    assert "send south/south.request.json" in waiting.out
    bare = signed("show", "consortium/roster.json")
    assert "held against no pinned key" in bare.out
    assert fingerprint(bare.out.replace("fingerprint ", "fingerprint  ")) == fingerprint(
        signed("show", "consortium").out.replace("fingerprint ", "fingerprint  ")
    )
    assert signed("show", "nowhere").code == 5
    assert signed("show", ".").code == 5


def test_ends_are_seen_thirty_days_ahead(roster: Call, tmp_path: Path) -> None:
    for left, says in ((18, "17 days left"), (-1, "expired")):
        folder = tmp_path / str(left)
        folder.mkdir()
        World.made(folder, datetime.now(UTC).replace(microsecond=0) - (398 - left) * DAY - timedelta(hours=1))
        outcome = roster("show", str(folder / "north"))
        assert outcome.out.count(says) == 4
        assert "consilia roster renew NAME" in outcome.err
        again = roster(
            "add", "north", "--dir", str(folder / "north"), "--roster", str(folder / "consortium/roster.json")
        )
        assert ("expires in 17 days: consilia roster renew north" in again.err) is (left > 0)
        assert again.code == (0 if left > 0 else 5)
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    World.made(fresh, datetime.now(UTC).replace(microsecond=0))
    assert "left" not in roster("show", str(fresh / "north")).out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["add", "north"], 2, "--role for a new member, or --roster"),
        (["add", "north", "--role", "site", "--roster", "x"], 2, "--role for a new member, or --roster"),
        (["add", "a/b", "--role", "site"], 2, "the member's name"),
        (["add", "north", "--role", "king"], 2, "king"),
        (["add", "north", "--roster", "x"], 5, "north"),
        (["init", "new", "--name", "../x"], 2, "the consortium's name"),
        (["init", "."], 2, "a new or empty folder"),
        (["sign", "missing.json", "also-missing.json"], 5, "missing.json"),
        (["sign", "plan.toml"], 5, "a JSON document"),
        (["sign"], 2, "REQUEST"),
        (["revoke", "north"], 2, "--reason"),
        (["revoke", "north", "--reason", "x"], 5, "consortium"),
        (["renew", "nobody"], 5, "nobody"),
    ],
)
def test_mistakes_are_said_in_one_clear_message(roster: Call, arguments: list[str], code: int, says: str) -> None:
    Path("plan.toml").write_text("[data]\n")
    outcome = roster(*arguments, "--json")
    assert outcome.code == code
    assert any(says in " ".join(problem.values()) for problem in outcome.problems)
    assert tree() == {Path("plan.toml"): b"[data]\n"}


def test_all_bad_requests_are_told_at_once(signed: Call) -> None:
    outcome = signed("sign", "missing.json", "north/tls.key", "--json")
    assert len(outcome.problems) == 2


def test_a_missing_request_or_roster_says_who_makes_it(signed: Call) -> None:
    signed_not = signed("sign", "west/west.request.json", "--json")
    assert signed_not.code == 5
    [problem] = signed_not.problems
    assert problem["who"] == "file west/west.request.json"
    assert "a member makes its request, NAME/NAME.request.json, with consilia roster add NAME" in problem["hint"]
    taken_not = signed("add", "south", "--roster", "roster.json", "--json")
    assert "the consortium's officer sends it" in taken_not.problems[0]["hint"]
    nowhere = signed("sign", "south/south.request.json", "--dir", "elsewhere", "--json")
    assert nowhere.code in (2, 5)
    assert "elsewhere" in nowhere.problems[0]["who"]
    assert "--dir names it" in nowhere.problems[0]["hint"]
    assert not Path("elsewhere").exists()


def test_never_two_of_anything(signed: Call) -> None:
    before = tree()
    assert signed("init", "consortium", "--json").code == 2
    assert signed("add", "north", "--role", "site", "--json").code == 2
    assert tree() == before


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "consilia", "roster", *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_two_officers_at_once(signed: Call) -> None:
    """One process waits at its question; another must not sign a second version 3 meanwhile."""
    signed("add", "west", "--role", "site")
    with start("sign", "west/west.request.json") as first:
        assert first.stdin is not None
        assert first.stderr is not None
        asked = ""
        while "[y/N]" not in asked:
            asked += first.stderr.read(1)
        refused = signed("revoke", "north", "--reason", "x", "--yes", "--json")
        assert refused.code == 5
        assert refused.problems[0]["needs"] == "one command at a time"
        out, _ = first.communicate("y\n", timeout=30)
        assert "version 3 of heart-study, 4 members" in out
    assert signed("revoke", "north", "--reason", "x", "--yes").code == 0


def test_thirty_members_in_one_go(roster: Call) -> None:
    roster("init", "consortium")
    names = [f"site-{number}" for number in range(30)]
    requests = []
    for name in names:
        requests.append(roster("add", name, "--role", "site", "--json").document["request"])
    assert roster("sign", *requests, "--yes", "--json").document["members"] == 30
    shown: dict[str, Any] = json.loads(roster("show", "consortium", "--json").out)
    assert sorted(one["name"] for one in shown["members"]) == sorted(names)
