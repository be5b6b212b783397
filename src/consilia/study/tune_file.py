"""The tune file: which keys of a plan a search tries, how many trials it makes, what the whole may cost."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from consilia.core.canonical import Json
from consilia.core.errors import PlanError, Problem
from consilia.dp import ranges, selection_trials
from consilia.dp.selection_trials import Fixed, NegativeBinomial, Poisson, Trials
from consilia.plan.faults import nearest, show
from consilia.plan.load import read_text

Law = Literal["geometric", "logarithmic", "negative-binomial", "poisson", "fixed"]
_SHAPES = {"geometric": 1.0, "logarithmic": 0.0}
_MOST_KEYS = 32


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Public(_Strict):
    """A stand-in for the plan's data: rows that nobody has to protect."""

    data: dict[str, Any] = Field(
        description='What stands in place of the plan\'s [data], such as { source = "adult" }.'
    )
    sites: dict[str, Any] | None = Field(
        None, description="In place of [sites]; the plan's own when absent, without its names and counts."
    )


class TuneFile(_Strict):
    """One search, as its file says."""

    trials: float = Field(
        ge=selection_trials.MEAN.low, le=selection_trials.MEAN.high,
        description="How many trials: the mean of a random number, or the number itself where it is fixed.",
    )  # fmt: skip
    distribution: Law = Field(
        "geometric",
        description=(
            "Law of the number of trials. A random number is kept secret and only the best trial is charged for; fixed: "
            "everybody may know it and all trials are charged."
        ),
    )
    eta: Annotated[float, Field(ge=selection_trials.ETA.low, le=selection_trials.ETA.high)] | None = Field(
        None, description="negative-binomial: its shape; 1 is geometric, 0 logarithmic."
    )
    epsilon: Annotated[float, Field(ge=ranges.EPSILON.low, le=ranges.EPSILON.high)] | None = Field(
        None, description="For the whole search, the winner included; the plan's privacy.epsilon when absent."
    )
    score: Literal["accuracy", "loss"] = Field("accuracy", description="What the best trial is best in.")
    search: dict[str, Any] = Field(
        description="Plan key -> a list of values, or { low = .., high = .., log = true } for a number in between."
    )
    public: Public | None = Field(None, description="Rows for a search that charges nothing (consilia tune --public).")

    @property
    def law(self) -> Trials:
        """The law of the number of trials.

        Raises:
            PlanError: If it has none with this mean.
        """
        if self.distribution == "fixed":
            return Fixed(int(self.trials))
        if self.distribution == "poisson":
            return Poisson(self.trials)
        eta = _SHAPES.get(self.distribution, self.eta)
        return NegativeBinomial.of_mean(1.0 if eta is None else eta, self.trials)


def load(path: Path) -> TuneFile:
    """Read a tune file; data files that it names are taken relative to it.

    Raises:
        PlanError: With every fault of the file.
    """
    name = f"tune file {path}"
    try:
        raw = tomllib.loads(read_text(path, "tune"))
    except (ValueError, RecursionError) as error:
        raise PlanError.of(
            name, needs="TOML", got=str(error) or type(error).__name__,
            hint="Lines look like  trials = 10  or, below [search],  training.rounds = [20, 40]",
        ) from None  # fmt: skip
    public = raw.get("public")
    data = public.get("data") if isinstance(public, dict) else None
    for key in ("path", "labels_path"):
        if isinstance(data, dict) and isinstance(data.get(key), str) and "\0" not in data[key]:
            data[key] = str(path.resolve().parent / data[key])
    return from_json(raw)


def from_json(raw: Mapping[str, Any]) -> TuneFile:
    """Read a tune file's values.

    Raises:
        PlanError: With every fault.
    """
    try:
        # By way of JSON: pydantic is strict there (no "3" for 3, no true for 1).
        tune = TuneFile.model_validate_json(json.dumps(raw, default=str), strict=True)
    except (ValidationError, RecursionError) as error:
        if isinstance(error, RecursionError):
            raise PlanError.of("the tune file", needs="keys and values", got="tables nested thousands deep",
                               hint="See docs/howto/tune.md") from None  # fmt: skip
        raise PlanError(_problem(fault) for fault in error.errors(include_url=False)) from None
    problems = list(_rules(tune))
    if problems:
        raise PlanError(problems)
    return tune


def canonical(tune: TuneFile) -> Json:
    """Return a tune file as plain values, defaults included."""
    value: dict[str, Json] = tune.model_dump(mode="json")
    return value


def keys(tune: TuneFile) -> dict[str, Any]:
    """Return plan key -> what to try, whether the file wrote "a.b" = .. or a.b = .. (which TOML nests)."""
    found: dict[str, Any] = {}

    def walk(prefix: str, table: Mapping[str, Any]) -> None:
        for key, value in table.items():
            name = f"{prefix}{key}"
            if isinstance(value, dict) and not {"low", "high"} & set(value):
                walk(f"{name}.", value)
            else:
                found[name] = value

    walk("", tune.search)
    return found


def _rules(tune: TuneFile) -> Any:
    if tune.distribution == "fixed" and tune.trials != int(tune.trials):
        yield Problem("tune key trials", 'a whole number with distribution = "fixed"', f"{tune.trials:g}", "Round it")
    if tune.distribution != "fixed" and tune.trials == 1:
        yield Problem("tune key trials", "a mean above 1 for a random number", "1", "Usual is 5 to 30")
    if (tune.eta is None) == (tune.distribution == "negative-binomial"):
        yield Problem("tune key eta", 'a value with distribution = "negative-binomial", and none with any other',
                      show(tune.eta), "1 is geometric, 0 logarithmic")  # fmt: skip
    count = len(keys(tune))
    if not 1 <= count <= _MOST_KEYS:
        yield Problem("tune section search", f"1 to {_MOST_KEYS} plan keys", f"{count}",
                      "Write below [search] lines such as  training.learning_rate = [0.1, 0.3, 1.0]")  # fmt: skip


def _problem(error: ErrorDetails) -> Problem:
    place = [str(part) for part in error["loc"]]
    name, known = ".".join(place), list(TuneFile.model_fields)
    if error["type"] == "extra_forbidden":
        guess = nearest(place[-1], known)
        hint = f"Did you mean {guess}?" if guess else f"Known keys: {', '.join(known)}"
        return Problem(f"tune key {name}", "to be one that tune files have", "an unknown key", hint)
    field = TuneFile.model_fields.get(place[0]) if place else None
    meaning = (field.description or "") if field is not None else ""
    got = "nothing" if error["type"] == "missing" else show(error["input"])
    needs = "a value" if error["type"] == "missing" else error["msg"][:1].lower() + error["msg"][1:]
    return Problem(f"tune key {name}" if name else "the tune file", needs.removeprefix("input should be "), got,
                   f"It means: {meaning[:1].lower()}{meaning[1:]}" if meaning else "See docs/howto/tune.md")  # fmt: skip
