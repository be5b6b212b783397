"""A plan's canonical form as the text a person would write, with what was left at its default told apart."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import PydanticUndefined

from consilia.plan.schema import section_models


@dataclass(frozen=True)
class Line:
    """One line: a section's head (key empty) or a key with its value."""

    section: str
    key: str
    value: str
    default: bool


def lines(plan: Mapping[str, Any]) -> list[Line]:
    """Return the plan's lines in the schema's order; keys without a value are left out."""
    found: list[Line] = []
    for section, values in plan.items():
        listed = isinstance(values, list)
        # The rounds of phases add up: what training.rounds says by default is not what runs.
        left_out = "rounds" if section == "training" and plan.get("phases") else ""
        for one in values if listed else [values]:
            inner = [line for line in _section(section, one) if line.value and line.key != left_out]
            if inner:
                head = f"[{section}]" if listed else section
                found += [Line(head, "", "", all(line.default for line in inner)), *inner]
    return found


def text(plan: Mapping[str, Any]) -> str:
    """Return the plan as TOML, without what was left at its default."""
    shown = [line for line in lines(plan) if not line.default]
    return "\n".join(f"{line.key} = {line.value}" if line.key else f"\n[{line.section}]" for line in shown).strip()


def toml(value: object) -> str:
    """Return a plain value as TOML writes it; empty for nothing."""
    if value is None or value in ({}, []):
        return ""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(str(key))} = {toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml(inner) for inner in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def _key(name: str) -> str:
    return (
        name
        if name and all(letter.isalnum() or letter in "-_" for letter in name) and name.isascii()
        else json.dumps(name)
    )


def _section(name: str, values: Mapping[str, Any]) -> Iterator[Line]:
    model = section_models().get(name)
    known: Mapping[str, Any] = model.model_fields if model is not None else {}
    for key, value in values.items():
        default = known[key].get_default(call_default_factory=True) if key in known else PydanticUndefined
        yield Line(name, key, toml(value), default is not PydanticUndefined and value == default)
