"""What the processes of a consortium are told: site.toml, coordinator.toml and operator.toml, each beside its member's keys."""

import json
import tomllib
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import Field, ValidationError

from consilia.core.errors import PlanError, Problem
from consilia.plan.load import read_text
from consilia.plan.values import Count, Name, Positive, Section

Address = Annotated[str, Field(min_length=3, max_length=255, pattern=r"^[^\s/]+:\d{1,5}$")]
Chance = Annotated[float, Field(ge=0, le=1)]
_Config = TypeVar("_Config", bound=Section)
_START = "Name the file with --config; docs/howto/run-a-coordinator.md and consilia site init say what is in it"


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
        None, pattern=r"^http://", description="The proxy that HTTPS goes through; what HTTPS_PROXY says when absent."
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


def read_config(path: Path, kind: type[_Config]) -> _Config:
    """Read one of these files.

    Raises:
        PlanError: With every fault of it.
    """
    who = f"file {path}"
    try:
        raw = tomllib.loads(read_text(path, noun="config", start=_START))
    except (ValueError, RecursionError) as error:
        raise PlanError.of(who, needs="TOML", got=f"{error}" or type(error).__name__,
                           hint='Lines look like  key = "text", below a [section]') from None  # fmt: skip
    try:
        return kind.model_validate_json(json.dumps(raw, default=str), strict=True)
    except ValidationError as error:
        raise PlanError(_problem(who, kind, fault["loc"], fault["msg"]) for fault in error.errors()) from None


def _problem(who: str, kind: type[Section], place: tuple[int | str, ...], message: str) -> Problem:
    key = ".".join(str(part) for part in place)
    known = ", ".join(kind.model_fields)
    return Problem(f"{who}, key {key}", "a value of its kind", message, f"Keys of this file: {known}")
