"""What the processes of a consortium are told: site.toml, coordinator.toml and operator.toml, each beside its member's keys."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails

from consilia.core.errors import PlanError, Problem
from consilia.plan.faults import location, nearest, needs_of, show
from consilia.plan.load import read_text
from consilia.plan.policy import Policy
from consilia.plan.schema import Plan
from consilia.plan.values import Count, Name, Positive, Section

_HOST_PORT, _PROXY = r"^[^\s/]+:\d{1,5}$", r"^http://"
_PATTERNS = {_HOST_PORT: "host:port", _PROXY: "http://host:port"}
Address = Annotated[str, Field(max_length=255, pattern=_HOST_PORT)]
Chance = Annotated[float, Field(ge=0, le=1)]
_Config = TypeVar("_Config", bound=Section)


class DataSet(Section):
    """Where a site's rows of one data set lie."""

    path: str | None = Field(
        None,
        description="The file, relative to site.toml; none for a built-in table, of which the site takes its own part.",
    )
    count_is_public: bool = Field(
        False, description="Whether the true number of training rows may be told; else plans must register a number."
    )


class SiteConfig(Section):
    """site.toml: what one site needs to take part."""

    coordinator: Address = Field(description="Where the coordinator listens, host:port.")
    fallback: Address | None = Field(
        None, description="Where it listens for HTTPS, host:port; tried where a firewall lets nothing else through."
    )
    proxy: str | None = Field(
        None, pattern=_PROXY, description="The proxy that HTTPS goes through; what HTTPS_PROXY says when absent."
    )
    proxy_authority: str | None = Field(
        None, description="Certificates, PEM, of a proxy that inspects what passes; relative to site.toml."
    )
    home: str = Field("home", description="Folder of the ledger and of all that the site keeps; relative to site.toml.")
    policy: str = Field("policy.toml", description="What this site agrees to; relative to site.toml.")
    data: dict[Name, DataSet] = Field(description="Data sets by the name that plans and ledgers know them by.")
    retry_cap_seconds: Positive = Field(30.0, description="Longest wait between two attempts to reach the coordinator.")


class Timing(Section):
    """The coordinator's settings of time; how long a round waits is the plan's."""

    heartbeat_seconds: Positive = Field(15.0, description="A site that is silent for three of these is gone.")
    upload_floor_bytes: Count = Field(
        20_000, description="Bytes a second: an answer on its way at the deadline is waited for while it is no slower."
    )
    run_hours: Positive = Field(72.0, description="A run that has not ended by then is stopped.")


class Rehearsal(Section):
    """Faults on purpose in the messages of rounds, to see whether quorum, deadline and tolerated dropouts hold."""

    seed: Annotated[int, Field(ge=0)] = Field(0, description="The same seed, the same faults.")
    drop: Chance = Field(0.0, description="How likely a message is lost.")
    delay: Chance = Field(0.0, description="How likely it comes after others, perhaps a round late.")
    repeat: Chance = Field(0.0, description="How likely it comes twice.")
    reorder: Chance = Field(0.0, description="How likely it comes behind the next one.")
    corrupt: Chance = Field(0.0, description="How likely its bytes are changed.")


class CoordinatorConfig(Section):
    """coordinator.toml: what the coordinator serves, and where it keeps it."""

    listen: Address = Field(description="Where sites and operators come in, host:port.")
    fallback: Address | None = Field(None, description="Where sites come in that only HTTPS is let through for.")
    status: Address = Field("127.0.0.1:8441", description="Where status and metrics are served, without a password.")
    store: str | None = Field(
        None, description="Database of all runs: postgresql+psycopg://...; a file in home when absent."
    )
    home: str = Field("home", description="Folder of the runs and of what is on its way; relative to coordinator.toml.")
    timing: Timing = Field(default_factory=Timing)
    rehearsal: Rehearsal | None = Field(None, description="Faults on purpose; none when absent.")


class OperatorConfig(Section):
    """operator.toml: whom an operator speaks to."""

    coordinator: Address = Field(description="Where the coordinator listens, host:port.")


_OPERATOR, _SITE, _COORDINATOR, _POLICY = "operator.toml", "site.toml", "coordinator.toml", "policy.toml"
# What people write, by name; where the keys of a text fit several of them, the first is meant.
_FILES: Mapping[str, type[Section]] = {
    _OPERATOR: OperatorConfig, _SITE: SiteConfig, _COORDINATOR: CoordinatorConfig, "a plan": Plan, _POLICY: Policy,
}  # fmt: skip
_STARTS = {
    _OPERATOR: 'It is one line, in the folder of the operator\'s keys: coordinator = "HOST:PORT"',
    _SITE: "consilia site init writes one into the folder of the site's keys",
    _COORDINATOR: "docs/howto/run-a-coordinator.md says what is in it; it lies in the folder of the coordinator's keys",
}  # fmt: skip
_WITHIN: Mapping[str, type[Section]] = {"data": DataSet, "timing": Timing, "rehearsal": Rehearsal}


def read_config(path: Path, kind: type[_Config]) -> _Config:
    """Read one of these files.

    Raises:
        PlanError: With every fault of it; with one, where it is another of them.
    """
    name = _name(kind)
    start = f"Name the {name} with --config. {_STARTS[name]}"
    return config_of(read_text(path, noun=name.removesuffix(".toml"), start=start), kind, f"file {path}")


def config_of(text: str, kind: type[_Config], who: str) -> _Config:
    """Read the text of one of these files.

    Raises:
        PlanError: As `read_config`.
    """
    try:
        raw = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlanError.of(who, needs="TOML", got=f"{error}" or type(error).__name__,
                           hint='Lines look like  key = "text", below a [section]') from None  # fmt: skip
    try:
        return kind.model_validate_json(json.dumps(raw, default=str), strict=True)
    except ValidationError as error:
        name, found = _name(kind), _written_as(raw)
        if len(raw.keys() & kind.model_fields) < len(raw.keys() & _FILES[found].model_fields):
            raise PlanError.of(who, needs=f"to be the {name}", got=f"the keys of {found}",
                               hint=f"Name the {name} with --config. {_STARTS[name]}") from None  # fmt: skip
        raise PlanError(_problem(who, kind, fault) for fault in error.errors(include_url=False)) from None


def _name(kind: type[Section]) -> str:
    return next(name for name, known in _FILES.items() if known is kind)


def _written_as(raw: Mapping[str, object]) -> str:
    """Return which of these files has most of the keys."""
    return max(_FILES, key=lambda name: len(raw.keys() & _FILES[name].model_fields))


def _problem(who: str, kind: type[Section], error: ErrorDetails) -> Problem:
    keys = location(error)
    if not keys:  # nested too deeply, or characters that are none
        return Problem(who, "plain values", error["msg"], "Write numbers, texts and tables")
    who = f"{who}, key {'.'.join(keys)}"
    known = (_WITHIN.get(keys[0], kind) if len(keys) > 1 else kind).model_fields
    if error["type"] == "extra_forbidden":
        guess = nearest(keys[-1], known)
        hint = f"Did you mean {guess}?" if guess else f"Known there: {', '.join(known)}"
        return Problem(who, "to be one that this file has", "an unknown key", hint)
    meaning = known[keys[-1]].description or "" if keys[-1] in known else ""
    if error["type"] == "missing":
        return Problem(who, "a value", "nothing", meaning)
    needs = _PATTERNS.get(error.get("ctx", {}).get("pattern", "")) or needs_of(error)
    return Problem(who, needs, show(error["input"]), meaning)
