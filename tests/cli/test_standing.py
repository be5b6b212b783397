"""`consilia status` at 80 columns: long reasons, many sites, and nothing that is cut off."""

from typing import Any

import pytest

from consilia.cli import standing

CLAUSE = "privacy.max_epsilon_run: the plan asks for epsilon 3 for its 2 rounds, this site agrees to 0.5 at most"
SITES = [f"hospital {number}" for number in range(12)]


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def run(**changes: object) -> dict[str, Any]:
    return {
        "run": "heart-20261130-080600-abcdef", "status": "running", "reason": None, "round": 3, "rounds": 40,
        "submitted": "2026-11-30T08:06:00+00:00", "by": "olga", "sites": None, "accuracy": 0.8123, "epsilon": 0.5,
        "last": None, "digest": "d" * 64, **changes,
    }  # fmt: skip


def whole(*runs: dict[str, Any]) -> dict[str, Any]:
    sites = [
        {"name": "hospital 0", "connected": True, "seconds": 61.0, "counts": {"up": 1234, "down": 99}, "certificate_days": 9},
        {"name": "hospital 1", "connected": False, "seconds": None, "counts": None, "certificate_days": 300},
        {"name": "hospital 2", "connected": False, "seconds": 5.0, "counts": {}, "certificate_days": 300},
    ]  # fmt: skip
    return {
        "consortium": "heart-study", "version": "1", "uptime": 90.0, "roster": 2, "sites": sites, "runs": list(runs),
    }  # fmt: skip


def failed() -> dict[str, Any]:
    reason = "0 of 12 sites may take part, 2 must:" + "".join(f"\n{site}: {CLAUSE}" for site in SITES)
    return run(status="failed", reason=reason, round=0, rounds=None, accuracy=None, epsilon=None, digest=None)


def test_a_reason_has_the_width_below_its_run(capsys: pytest.CaptureFixture[str]) -> None:
    standing.show(whole(run(), run(run="b", status="stopped", reason=CLAUSE), failed()))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    place = next(number for number, line in enumerate(lines) if line.startswith("b "))
    assert lines[place + 1].startswith("  privacy.max_epsilon_run: the plan asks for epsilon 3 for its 2 rounds,")
    assert " ".join(" ".join(lines[place + 1 : place + 3]).split()) == CLAUSE
    assert lines[-1] == "  0 of 12 sites may take part, 2 must (consilia status RUN says which)"
    assert not any(site in line for site in SITES[3:] for line in lines)  # they have the run's own page


def test_sites_are_told_as_connected_away_or_never_seen(capsys: pytest.CaptureFixture[str]) -> None:
    standing.show(whole())
    out = capsys.readouterr().out
    assert "heart-study  1 of 3 sites connected, up 90 s, Consilia 1, roster version 2" in out
    assert [line.split()[2] for line in out.splitlines() if line.startswith("hospital")] == ["connected", "not", "away"]
    assert "1.23 kB" in out
    assert "No run yet: consilia submit PLAN" in out


def test_what_a_queued_run_waits_for(capsys: pytest.CaptureFixture[str]) -> None:
    answers = {"a": "waiting", "b": "accepted", "c": "silent"}
    sites = [{"name": name, "answer": answer, "why": None} for name, answer in answers.items()]
    standing.show(whole(run(status="queued", sites=sites)))
    assert capsys.readouterr().out.splitlines()[-1] == "  waits for a steward at a"
    standing.show(whole(run(status="queued", sites=sites[1:])))
    assert capsys.readouterr().out.splitlines()[-1] == "  waits for c"


def test_a_failed_run_has_a_row_for_each_site(capsys: pytest.CaptureFixture[str]) -> None:
    standing.show_run(failed())
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "heart-20261130-080600-abcdef  failed"
    assert lines[2] == "reason     0 of 12 sites may take part, 2 must:"
    for site in SITES:
        [place] = [number for number, line in enumerate(lines) if line.startswith(f"           {site}: ")]
        assert lines[place + 1].startswith("           ")
        assert " ".join(" ".join(lines[place : place + 2]).split()) == f"{site}: {CLAUSE}"


def test_a_run_under_way_shows_each_sites_answer(capsys: pytest.CaptureFixture[str]) -> None:
    sites = [
        {"name": "a", "answer": "accepted", "why": None},
        {"name": "b", "answer": "accepted", "why": None},
        {"name": "c", "answer": "refused", "why": CLAUSE},
    ]
    last = {"round": 3, "answered": ["a"], "dropped": {"b": "no answer before the deadline"}}
    standing.show_run(run(sites=sites, last=last))
    out = capsys.readouterr().out
    assert "accuracy   81.2 %" in out
    assert "epsilon    0.5 for the whole run" in out
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line[:2] in ("a ", "b ", "c ")}
    assert rows["a"] == ["accepted", "counted"]
    assert rows["b"] == ["accepted", "no", "answer", "before", "the", "deadline"]
    assert rows["c"][0] == "refused"
    assert max(map(len, out.splitlines())) <= 80
