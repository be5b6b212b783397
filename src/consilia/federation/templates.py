"""The files that a site begins with, every setting explained."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic.fields import FieldInfo

from consilia.core.errors import PlanError, StoreError
from consilia.federation.config import DataSet, SiteConfig, config_of

_HEAD = """\
# What this site needs to take part. Run it with: consilia site --config site.toml
# A line that begins with "# key =" shows a setting that is as it is without it.
"""
_EXAMPLES = {
    "fallback": "coordinator.example.org:443", "proxy": "http://proxy.example.org:3128", "proxy_authority": "proxy.pem",
}  # fmt: skip


def write_site(config: Path, coordinator: str, data: Sequence[str], policy: str) -> list[Path]:
    """Write site.toml and policy.toml.

    Args:
        config: Where site.toml is to lie, in the folder of the site's keys.
        coordinator: Where the coordinator listens, host:port.
        data: Data sets, as NAME=FILE, or NAME for a built-in table.
        policy: Text of the policy.

    Raises:
        PlanError: If no data set is named, or what is named can be none.
        StoreError: If a file exists, or cannot be written.
    """
    if not data:
        raise PlanError.of("consilia site init", needs="at least one --data NAME=FILE", got="none",
                           hint="NAME is what plans call the data set, as in --data cardiology=rows.csv")  # fmt: skip
    files = {config: site_text(coordinator, data), config.with_name("policy.toml"): policy}
    config_of(files[config], SiteConfig, "consilia site init")
    for path, text in files.items():
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileNotFoundError:
            raise StoreError.of(f"file {path}", needs="the folder of the site's keys", got="no such folder", hint=(
                "consilia roster add NAME --role site makes it, in NAME: then --config NAME/site.toml"
            )) from None  # fmt: skip
        except FileExistsError:
            raise StoreError.of(f"file {path}", needs="a name that is free", got="a file that exists",
                                hint="Nothing is overwritten: edit it, or move it away") from None  # fmt: skip
        except OSError as error:
            raise StoreError.of(f"file {path}", needs="to be writable", got=error.strerror or "an error",
                                hint="Check the folder, its permissions and the space left") from None  # fmt: skip
    return list(files)


def site_text(coordinator: str, data: Sequence[str]) -> str:
    """Return the text of a site.toml."""
    lines = [_HEAD]
    for name, field in SiteConfig.model_fields.items():
        if name == "data":
            continue
        lines += _setting(name, field, coordinator if name == "coordinator" else None)
    for one in data:
        name, _, file = one.partition("=")
        lines += ["", f"[data.{json.dumps(name)}]"]
        for key, field in DataSet.model_fields.items():
            lines += _setting(key, field, file or None if key == "path" else None)
    return "\n".join(lines) + "\n"


def _setting(name: str, field: FieldInfo, value: str | None) -> Iterator[str]:
    yield f"# {field.description}"
    shown = (
        value if value is not None else field.default if field.default is not None else _EXAMPLES.get(name, "rows.csv")
    )
    yield f"{'' if value is not None else '# '}{name} = {json.dumps(shown)}"
