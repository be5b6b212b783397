"""What `consilia site init` writes is what its own classes read, whatever names and paths it is given."""

import tomllib
from pathlib import Path

import pytest

from consilia.core.errors import PlanError, StoreError
from consilia.federation.config import DataSet, SiteConfig, config_of
from consilia.federation.templates import site_text, write_site
from consilia.plan.policy import Policy
from consilia.plan.policy_template import policy_template


def test_every_setting_is_explained_and_shown() -> None:
    text = site_text("hub:8440", ["a=rows.csv"])
    for kind in (SiteConfig, DataSet):
        for name, field in kind.model_fields.items():
            if name != "data":
                assert f"# {field.description}\n" in text
                assert f"\n{name} = " in text or f"\n# {name} = " in text


def test_settings_that_are_shown_as_they_are_change_nothing_when_taken_up() -> None:
    """Whoever takes a '# ' away keeps what held without the line, or has an example that is one of its kind."""
    text = site_text("hub:8440", ["a=rows.csv"])
    lines = [
        line[2:] if line.startswith("# ") and " = " in line and "key =" not in line else line
        for line in text.splitlines()
    ]
    shown = config_of("\n".join(lines), SiteConfig, "test")
    plain = config_of(text, SiteConfig, "test")
    differ = {name for name in SiteConfig.model_fields if getattr(shown, name) != getattr(plain, name)}
    assert differ == {"fallback", "proxy", "proxy_authority"}  # no default: examples


@pytest.mark.parametrize("file", ["rows.csv", 'a "quoted" \\ path.csv', "C:\\rows.csv", "r=1.csv", "größe.csv", "a\nb"])
def test_paths_of_any_kind_come_back(file: str) -> None:
    data = config_of(site_text("hub:8440", [f"a={file}"]), SiteConfig, "test").data
    assert data["a"].path == file


def test_an_empty_path_is_a_builtin_table() -> None:
    assert tomllib.loads(site_text("hub:8440", ["heart", "a="]))["data"] == {"heart": {}, "a": {}}


def test_a_name_twice_is_a_fault_and_no_file(tmp_path: Path) -> None:
    with pytest.raises(PlanError):
        write_site(tmp_path / "site.toml", "hub:1", ["a=1.csv", "a=2.csv"], "")
    assert list(tmp_path.iterdir()) == []


def test_the_policy_is_the_strict_one(tmp_path: Path) -> None:
    written = write_site(tmp_path / "site.toml", "hub:1", ["a"], policy_template())
    assert written == [tmp_path / "site.toml", tmp_path / "policy.toml"]
    assert Policy.read(written[1]) == Policy()


def test_a_folder_that_cannot_be_written(unprivileged: Path) -> None:
    unprivileged.chmod(0o500)
    try:
        with pytest.raises(StoreError, match="needs to be writable; got Permission denied"):
            write_site(unprivileged / "site.toml", "hub:1", ["a"], "")
    finally:
        unprivileged.chmod(0o700)
