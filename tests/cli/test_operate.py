"""`consilia submit`, `status` and `stop` with a coordinator that is played: what is asked, what is told, and how it ends."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from consilia.cli import operate
from consilia.core.errors import TransportError
from consilia.federation import site_process
from consilia.transport.grpc import control

Call = Callable[..., Any]


class Played:
    """A coordinator that answers what it was told to, in turn."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, Any]] = []
        self.standings: list[dict[str, Any] | TransportError] = []

    def call(self, address: str, _credentials: object, request: dict[str, Any]) -> dict[str, Any]:
        assert address == "hub:1"
        self.asked.append(request)
        if request["do"] != "status":
            return {"run": request["run"]}
        standing = self.standings.pop(0)
        if isinstance(standing, TransportError):
            raise standing
        run = next((asked["run"] for asked in reversed(self.asked) if "run" in asked), "known-1")
        return {"runs": [{"run": run, "reason": None, "round": 0, **standing}]}


@pytest.fixture
def played(call: Call, monkeypatch: pytest.MonkeyPatch) -> Played:
    made = Played()
    monkeypatch.setattr(control, "call", made.call)
    monkeypatch.setattr(site_process, "member", lambda folder, role: (folder, role))
    monkeypatch.setattr(operate, "_LOOK", 0.0)
    Path("operator.toml").write_text('coordinator = "hub:1"\n')
    return made


def away(why: str) -> TransportError:
    return TransportError.of("operator olga", needs="a coordinator at hub:1", got=why, hint="")


def test_submit_names_the_run_and_how_to_follow_it(call: Call, heart: str, played: Played) -> None:
    outcome = call("submit", heart)
    assert outcome.code == 0
    [asked] = played.asked
    assert outcome.out == f"{asked['run']}\n"  # so that a script can use it
    assert f"Follow it with: consilia status {asked['run']} --config operator.toml" in outcome.err
    assert asked["plan"]["data"]["source"] == "heart"


def test_of_files_only_the_names_travel(call: Call, heart: str, played: Played) -> None:
    Path("first.safetensors").touch()
    Path("approved.toml").touch()
    changes = {
        "model.initial": Path("first.safetensors").resolve(),
        "secure_sum.policy": Path("approved.toml").resolve(),
    }
    assert (
        call("submit", heart, *(word for key, path in changes.items() for word in ("--set", f"{key}={path}"))).code == 0
    )
    plan = played.asked[0]["plan"]
    assert (plan["model"]["initial"], plan["secure_sum"]["policy"]) == ("first.safetensors", "approved.toml")
    assert str(Path.cwd()) not in str(plan)


def test_waiting_says_once_that_the_coordinator_is_away(call: Call, heart: str, played: Played) -> None:
    played.standings = [
        *[away("connection refused")] * 3, away("a name that no machine has"), {"status": "running"},
        away("connection refused"), {"status": "done", "round": 1},
    ]  # fmt: skip
    outcome = call("submit", heart, "--wait")
    assert outcome.code == 0
    assert outcome.out.endswith(": done after 1 round\n")
    assert outcome.err.count("got connection refused") == 2
    assert outcome.err.count("waiting: ") == 3


def test_a_run_that_fails_ends_the_wait_with_exit_code_4(call: Call, heart: str, played: Played) -> None:
    played.standings = [{"status": "failed", "reason": "0 of 2 sites may take part, 2 must:\na: no\nb: no"}]
    outcome = call("submit", heart, "--wait")
    assert outcome.code == 4
    assert outcome.out.endswith("failed after 0 rounds\n0 of 2 sites may take part, 2 must:\na: no\nb: no\n")
    played.standings = [{"status": "failed"}]
    again = call("submit", heart, "--wait", "--json")
    assert (again.code, again.document["status"]) == (4, "failed")


def test_a_run_that_nobody_knows(call: Call, played: Played) -> None:
    played.standings = [{"status": "running"}]
    outcome = call("status", "other-1", "--json")
    assert outcome.code == 2
    assert outcome.problems == [
        {
            "who": "consilia status", "needs": "a run that the coordinator knows", "got": "other-1",
            "hint": "Without a run, consilia status lists them",
        }
    ]  # fmt: skip


def test_stop_asks_for_this_run(call: Call, played: Played) -> None:
    assert call("stop", "known-1").out == "known-1 stops after its round.\n"
    assert played.asked == [{"do": "stop", "run": "known-1"}]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("site.toml", 'coordinator = "hub:1"\n[data.heart]\n'),
        ("coordinator.toml", 'listen = "localhost:1"\nstatus = "localhost:2"\n'),
        ("policy.toml", '[approval]\nmode = "never"\n'),
        ("a plan", '[data]\nsource = "heart"\n[training]\nrounds = 2\n'),
    ],
)
@pytest.mark.parametrize("command", ["submit", "status", "stop"])
def test_the_wrong_kind_of_file_is_named(call: Call, heart: str, command: str, name: str, text: str) -> None:
    Path("given.toml").write_text(text)
    words = {"submit": [heart], "status": [], "stop": ["known-1"]}[command]
    outcome = call(command, *words, "--config", "given.toml", "--json")
    assert outcome.code == 2
    [problem] = outcome.problems
    assert problem["who"] == "file given.toml"
    assert (problem["needs"], problem["got"]) == ("to be the operator.toml", f"the keys of {name}")
    assert 'coordinator = "HOST:PORT"' in problem["hint"]


def test_a_missing_file_says_what_it_holds(call: Call) -> None:
    [problem] = call("status", "--json").problems
    assert problem["who"] == "operator file operator.toml"
    assert 'coordinator = "HOST:PORT"' in problem["hint"]
