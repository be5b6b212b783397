"""site.toml, coordinator.toml and operator.toml: every fault at once, with the key that was meant."""

from pathlib import Path

import pytest

from consilia.core.errors import PlanError
from consilia.federation.config import CoordinatorConfig, OperatorConfig, SiteConfig, config_of, read_config
from consilia.plan.values import Section

UNKNOWN = "needs to be one that this file has; got an unknown key."
SITE = 'coordinator = "hub:8440"\n'


def fault(text: str, kind: type[Section] = SiteConfig) -> str:
    with pytest.raises(PlanError) as caught:
        config_of(text, kind, "file x.toml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (SITE + 'fallbak = "hub:443"\n[data.a]\n', f"key fallbak {UNKNOWN} Did you mean fallback?"),
        (SITE + "[data.a]\ncount_is_publik = true\n", f"key data.a.count_is_publik {UNKNOWN} Did you mean count_is_public?"),
        (SITE + "zzz = 1\n[data.a]\n", "Known there: coordinator, fallback, proxy,"),
        (SITE + "[data.a]\ncount_is_public = 1\n", "key data.a.count_is_public needs true or false; got 1."),
        (SITE + "retry_cap_seconds = 0\n[data.a]\n", "key retry_cap_seconds needs a number above 0; got 0."),
        (SITE + "retry_cap_seconds = inf\n[data.a]\n", "key retry_cap_seconds"),
        (SITE + 'proxy = "socks://x"\n[data.a]\n', 'key proxy needs http://host:port; got "socks://x".'),
        ('coordinator = "hub"\n[data.a]\n', 'key coordinator needs host:port; got "hub". Where the coordinator listens'),
        ('coordinator = ""\n[data.a]\n', "key coordinator needs host:port"),
        ("[data.a]\n", "key coordinator needs a value; got nothing. Where the coordinator listens, host:port."),
        (SITE + '[data."../a"]\n', "key data.../a needs a name"),
        (SITE + "data = 3\n", "key data needs"),
        (SITE + "[data\n", "file x.toml needs TOML; got"),
        (SITE + "x = " + "[" * 10_000, "file x.toml needs TOML; got"),
    ],
)  # fmt: skip
def test_a_fault_is_told_with_its_key(text: str, told: str) -> None:
    assert told in fault(text)


def test_every_fault_at_once_and_none_is_the_librarys_wording() -> None:
    text = fault('coordinator = "hub"\nretry_cap_seconds = "soon"\nfoo = 1\n[data.a]\npath = 3\n')
    assert [line.split(" needs")[0] for line in text.splitlines()] == [
        "file x.toml, key coordinator", "file x.toml, key data.a.path", "file x.toml, key retry_cap_seconds",
        "file x.toml, key foo",
    ]  # fmt: skip
    assert "Extra inputs" not in text
    assert "valid" not in text


def test_sections_of_the_coordinator() -> None:
    head = 'listen = "localhost:1"\n'
    assert "Did you mean heartbeat_seconds?" in fault(head + "[timing]\nheartbeat_second = 1\n", CoordinatorConfig)
    assert "key rehearsal.drop needs a number of at most 1; got 2" in fault(
        head + "[rehearsal]\ndrop = 2\n", CoordinatorConfig
    )
    assert (
        config_of(head, CoordinatorConfig, "x").status == "127.0.0.1:8441"
    )  # loopback, unless somebody says otherwise


@pytest.mark.parametrize(
    ("kind", "name"), [(OperatorConfig, "operator"), (SiteConfig, "site"), (CoordinatorConfig, "coordinator")]
)
def test_a_missing_file_or_a_folder(tmp_path: Path, kind: type[Section], name: str) -> None:
    with pytest.raises(PlanError, match=rf"{name} file .* needs to exist; .* Name the {name}.toml with --config"):
        read_config(tmp_path / "x.toml", kind)
    with pytest.raises(PlanError, match=rf"got a directory. Name the {name}.toml inside it"):
        read_config(tmp_path, kind)


def test_one_typing_error_does_not_make_it_another_kind_of_file() -> None:
    assert "Did you mean coordinator?" in fault('coordinatr = "hub:1"\n', OperatorConfig)
    assert "Did you mean listen?" in fault('listn = "hub:1"\nstatus = "localhost:2"\n', CoordinatorConfig)
