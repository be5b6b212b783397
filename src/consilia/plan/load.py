"""Read a plan: the file, the overrides of a command line, and every fault at once."""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from consilia.core.canonical import Json
from consilia.core.errors import PlanError, Problem
from consilia.plan.faults import location, problems_of
from consilia.plan.rules import broken
from consilia.plan.schema import Plan

MAX_BYTES = 1 << 20
_START = "Begin with a plan that works: consilia init"


def load(path: str | Path, overrides: Sequence[str] = ()) -> Plan:
    """Read a plan from a TOML file; data files it names are taken relative to it.

    Args:
        path: The file.
        overrides: Changes such as "privacy.epsilon=3": a TOML value, or a bare word as a text.

    Raises:
        PlanError: With every fault of the file, its keys and the overrides.
    """
    path = Path(path)
    return _plan(read_text(path), overrides, name=str(path), folder=path.resolve().parent)


def from_text(text: str, overrides: Sequence[str] = (), *, name: str = "plan") -> Plan:
    """Read a plan from TOML text; data files it names stay as written.

    Raises:
        PlanError: With every fault of its keys and the overrides.
    """
    return _plan(text, overrides, name=name, folder=None)


def from_json(value: Json) -> Plan:
    """Read back a plan from its canonical form, as a journal keeps it.

    Raises:
        PlanError: If it is not one.
    """
    try:
        return Plan.model_validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        raise PlanError(problems_of(error.errors(include_url=False))) from None


def canonical(plan: Plan) -> Json:
    """Return a plan as plain values, defaults included: equal plans are equal values."""
    value: dict[str, Json] = plan.model_dump(mode="json")
    return value


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a plan, for editors."""
    return Plan.model_json_schema()


def read_text(path: Path, noun: str = "plan", start: str = _START, *, blank: bool = False) -> str:
    """Read a small TOML file written by hand.

    Args:
        path: The file.
        noun: What it is, for errors.
        start: What to do where there is none.
        blank: Whether an empty one will do.

    Raises:
        PlanError: If it is no such file.
    """
    who = f"{noun} file {path}"

    def fault(needs: str, got: str, hint: str) -> PlanError:
        return PlanError.of(who, needs=needs, got=got, hint=hint)

    try:
        if path.is_dir():
            raise fault("a file", "a directory", f"Name the {noun}.toml inside it")
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise fault("to exist", "no such file", f"Check the path. {start}") from None
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise fault("to be readable", reason, "Check the path and its permissions") from None
    if len(raw) > MAX_BYTES:
        raise fault(f"at most {MAX_BYTES} bytes", "more", "It is a short text; name data files in it")
    if b"\0" in raw:
        raise fault("text", "binary content", "Name a TOML file, not a data file or model")
    try:
        text = raw.decode("utf-8-sig")  # Windows editors put a byte order mark in front
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise fault("UTF-8 text", f"another encoding on line {line}", "Save it as UTF-8") from None
    if not blank and not text.strip():
        raise fault("a section [data]", "an empty file", start)
    return text


def _plan(text: str, overrides: Sequence[str], *, name: str, folder: Path | None) -> Plan:
    try:
        raw = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: also a number of thousands of digits
        raise PlanError.of(
            f"plan file {name}",
            needs="TOML",
            got=str(error) or type(error).__name__,
            hint='Lines look like  key = 0.3  (not .3) or  key = "text", below a [section]',
        ) from None
    problems = _override(raw, overrides)
    if folder is not None:
        _anchor(raw, folder)
    try:
        plan = _validate(raw)
    except RecursionError:
        problems.append(Problem(f"plan file {name}", "sections and keys", "tables nested thousands deep",
                                "A plan has sections of keys, and no tables below those that the template shows"))  # fmt: skip
        raise PlanError(problems) from None
    except ValidationError as error:
        errors = error.errors(include_url=False)
        problems += problems_of(errors)
        problems += _rules_on_the_rest(raw, [location(fault) for fault in errors])
        raise PlanError(problems) from None
    if problems:
        raise PlanError(problems + broken(plan))
    return plan


def _validate(raw: Mapping[str, Any]) -> Plan:
    # By way of JSON: pydantic is strict there (no "3" for 3, no true for 1) and still takes a list as a pair.
    return Plan.model_validate_json(json.dumps(raw, default=str), strict=True)


def _rules_on_the_rest(raw: dict[str, Any], faulty: list[tuple[str, ...]]) -> list[Problem]:
    """Return the rules broken by what validates, without those that speak of a faulty key."""
    rest = {key: dict(value) if isinstance(value, dict) else value for key, value in raw.items()}
    if () in faulty:
        return []
    for keys in faulty:
        if len(keys) == 1 or keys[0] == "phases":
            rest.pop(keys[0], None)
        elif isinstance(rest.get(keys[0]), dict):
            rest[keys[0]].pop(keys[1], None)
    try:
        plan = _validate(rest)
    except ValidationError:  # the data section itself is missing or faulty
        return []
    names = [".".join(keys[:2]) for keys in faulty]
    return [problem for problem in broken(plan) if not any(name in str(problem) for name in names)]


def _override(raw: dict[str, Any], overrides: Sequence[str]) -> list[Problem]:
    problems = []
    for text in overrides:
        keys, sign, value = text.partition("=")
        path = [key.strip() for key in keys.split(".")]
        who = f"override {_short(text)}"
        if path[0] == "phases":
            problems.append(
                Problem(who, "a key of a section", "phases, a list of sections", "Change it in the plan file")
            )
            continue
        if not sign or len(path) < 2 or not all(path):
            problems.append(Problem(who, "the form section.key=value", "another form", "As in privacy.epsilon=3"))
            continue
        try:
            parsed = _value(value.strip())
        except ValueError:
            problems.append(
                Problem(who, "a TOML value", _short(value.strip()) or "nothing", 'As in 3, true, "text" or [1, 2]')
            )
            continue
        table: Any = raw
        for key in path[:-1]:
            if not isinstance(table.get(key), dict):
                table[key] = {}
            table = table[key]
        table[path[-1]] = parsed
    return problems


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."


def _value(text: str) -> object:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        parsed = {}
    if list(parsed) == ["value"]:
        return parsed["value"]
    if re.fullmatch(r"[+-]?\.\d+", text):
        return float(text)  # .5 is no TOML, but what people type
    if not text or any(mark in text for mark in "\"'[]{}\n#="):
        raise ValueError(text)
    return text  # a bare word: --set training.algorithm=fedsgd needs no quotes inside the shell's


def _anchor(raw: dict[str, Any], folder: Path) -> None:
    for name, keys in (("data", ("path", "labels_path")), ("model", ("initial",)), ("secure_sum", ("policy",))):
        section = raw.get(name)
        if not isinstance(section, dict):
            continue
        for key in keys:
            value = section.get(key)
            if isinstance(value, str) and value and "\0" not in value:
                section[key] = str(folder / value)
