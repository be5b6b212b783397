"""`consilia study compare`: a table of 80 columns, files, refusals."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from consilia.study import software_tpm

Call = Callable[..., Any]
SHORT = ["--set", "training.rounds=2", "--seeds", "1"]


@pytest.fixture(autouse=True)
def no_tpm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software_tpm, "available", lambda: False)
    monkeypatch.delenv("CONSILIA_TPM", raising=False)


def test_a_table_words_and_files(call: Call, heart: str) -> None:
    outcome = call("study", "compare", heart, *SHORT, "--out", "found")
    assert outcome.code == 0
    assert max(map(len, outcome.out.splitlines())) <= 80
    for words in ("secure sum + DP", "threshold RLWE", "What the server sees", "epsilon 1 against server", "Did not run",
                  "Install swtpm", "nothing: runs and their own ledgers are in found"):  # fmt: skip
        assert words in outcome.out
    assert "no ledger of a site is charged" in outcome.err
    assert {path.name for path in Path("found").iterdir()} == {
        "runs", "comparison.html", "comparison.svg", "comparison.json"
    }  # fmt: skip
    assert not Path(".consilia").exists()


def test_json_is_one_document(call: Call, heart: str) -> None:
    outcome = call("study", "compare", heart, *SHORT, "--out", "found", "--json")
    document = outcome.document
    assert [row["name"] for row in document["rows"]][:3] == ["plain", "dp", "secure-sum"]
    assert document["seeds"] == [1]
    assert Path(document["figure"]).read_text().startswith("<svg")
    assert "For public" not in outcome.err
    again = call("study", "compare", heart, *SHORT, "--out", "found", "--json")
    assert (again.code, again.problems[0]["needs"]) == (5, "an empty folder")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("nowhere.toml",), "nowhere.toml"),
        (("PLAN", "--seeds", "0"), "--seeds"),
        (("PLAN", "--set", "data.source=npz", "--set", "data.path=rows.npz"), "rows that nobody has to protect"),
    ],
)
def test_misuse(call: Call, heart: str, arguments: tuple[str, ...], word: str) -> None:
    outcome = call("study", "compare", *(heart if word == "PLAN" else word for word in arguments), "--json")
    assert outcome.code == 2
    assert word in str(outcome.problems)
    assert not Path("comparisons").exists()
