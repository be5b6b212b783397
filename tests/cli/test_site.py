"""`consilia site init`: writes what a site needs, or says what stands in the way."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from consilia.federation.config import SiteConfig, read_config
from consilia.plan.policy import Policy

Call = Callable[..., Any]
WHERE = ("--coordinator", "hub.example.org:8440")


def test_what_is_written_is_read_back(call: Call) -> None:
    Path("north").mkdir()
    data = ("--data", "cardiology=rows of 2026.csv", "--data", "heart")
    outcome = call("site", "init", "--config", "north/site.toml", *WHERE, *data)
    assert outcome.code == 0
    assert "Next: read north/policy.toml, then: consilia site --config north/site.toml" in outcome.out
    config = read_config(Path("north/site.toml"), SiteConfig)
    assert config.coordinator == "hub.example.org:8440"
    assert {name: one.path for name, one in config.data.items()} == {"cardiology": "rows of 2026.csv", "heart": None}
    assert config == SiteConfig(coordinator=config.coordinator, data=config.data)  # what is shown as default is it
    assert Policy.read(Path("north/policy.toml")) == Policy()


def test_a_missing_folder_is_said_to_come_from_the_sites_keys(call: Call) -> None:
    outcome = call("site", "init", "--config", "north/site.toml", *WHERE, "--data", "heart")
    assert outcome.code == 5
    assert "  needs  the folder of the site's keys\n  got    no such folder\n" in outcome.err
    assert "consilia roster add NAME --role site" in outcome.err


def test_nothing_is_overwritten(call: Call) -> None:
    Path("site.toml").write_text("mine")
    outcome = call("site", "init", *WHERE, "--data", "heart")
    assert outcome.code == 5
    assert "  got    a file that exists\n" in outcome.err
    assert Path("site.toml").read_text() == "mine"
    assert not Path("policy.toml").exists()


@pytest.mark.parametrize(
    ("words", "who", "needs"),
    [
        (("--coordinator", "hub", "--data", "heart"), "key coordinator", "host:port"),
        ((*WHERE, "--data", "a/b=rows.csv"), "key data.a/b", "a name"),
        (WHERE, "consilia site init", "at least one --data"),
    ],
)
def test_what_no_site_could_read_is_not_written(call: Call, words: tuple[str, ...], who: str, needs: str) -> None:
    outcome = call("site", "init", *words)
    assert outcome.code == 2
    assert outcome.err.startswith("1 problem\n")
    assert who in outcome.err
    assert f"  needs  {needs}" in outcome.err
    assert list(Path().iterdir()) == []
