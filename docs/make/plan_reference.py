"""Write docs/reference/plan.md from the schema of plans and from the rules on keys without effect.

python docs/make/plan_reference.py
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from consilia.plan.load import json_schema
from consilia.plan.rules_unused import _RULES
from consilia.plan.schema import section_models

PAGE = Path(__file__).resolve().parents[1] / "reference" / "plan.md"
_HEAD = """\
# Plan

<!-- Written by docs/make/plan_reference.py; a test holds it to the schema. -->

A plan is a TOML file: all that the parties of one run agree on. Unknown keys are errors, and so is a key that nothing
would read: the column *only with* says which setting it needs. `consilia init` writes a plan with every key,
`consilia schema` prints the JSON schema for editors, and `consilia check` names every problem of a plan at once. On the
command line a key is changed with `--set section.key=value`.

Rules between keys (which unit goes with which placement of noise, when counts must be registered, when delta needs a
reason) are told by `consilia check`, with what to do; the reasons are in [guarantees.md](../guarantees.md). The letters
are those of [notation.md](../notation.md).
"""


def page() -> str:
    """Return the page's text."""
    schema = json_schema()
    return "\n".join([_HEAD, *(_section(name, entry, schema) for name, entry in schema["properties"].items())])


def _section(name: str, entry: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    return section_page(name, entry, schema, section_models(), _needs())


def section_page(
    name: str, entry: Mapping[str, Any], schema: Mapping[str, Any], models: Mapping[str, type[BaseModel]],
    needs: Mapping[str, str] | None = None,
) -> str:  # fmt: skip
    """Return a section's table: its keys, kinds, defaults and meanings, and what they are of use with, where that is said."""
    listed = "items" in entry
    section = schema["$defs"][(entry["items"] if listed else entry)["$ref"].rsplit("/", 1)[-1]]
    rows = []
    for key, value in section["properties"].items():
        default = "required" if key in section.get("required", ()) else _default(models[name], key)
        cells = [f"`{key}`", _kind(value), default, _cell(value["description"])]
        rows.append(
            "| " + " | ".join(cells + ([] if needs is None else [_cell(needs.get(f"{name}.{key}", ""))])) + " |"
        )
    titles = ["key", "value", "default", "meaning", *([] if needs is None else ["only with"])]
    head = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    return "\n".join([f"## [[{name}]]" if listed else f"## [{name}]", "", section["description"], "", *head, *rows, ""])


def _needs() -> dict[str, str]:
    return {key: f"`{setting}`" for keys, setting, _ in _RULES for key in keys.split()}


def _default(model: type[BaseModel], key: str) -> str:
    default = model.model_fields[key].get_default(call_default_factory=True)
    return "" if default in (None, {}) else f"`{json.dumps(default)}`"


def _kind(value: Mapping[str, Any]) -> str:
    if "anyOf" in value:
        return " or ".join(_kind(part) for part in value["anyOf"] if part.get("type") != "null")
    if "enum" in value:
        return ", ".join(f"`{word}`" for word in value["enum"])
    if "const" in value:
        return f"`{value['const']}`"
    match value["type"]:
        case "array":
            return f"list of {_many(value['items'])}" if "items" in value else "[low, high]"
        case "object":
            kinds = value.get("patternProperties", {"": value.get("additionalProperties")})  # of names, or of any text
            return f"table of {_many(next(iter(kinds.values())))}"
        case "boolean":
            return "true or false"
        case "string":
            return "name" if "pattern" in value else "text"
        case kind:
            return ("whole number" if kind == "integer" else "number") + _range(value)


def _many(value: Mapping[str, Any]) -> str:
    one = _kind(value)
    if one.startswith(("[", "list")):
        return one.replace("list", "lists", 1)
    words = "whole numbers" if one.startswith("whole number") else f"{one}s"
    return words + one.removeprefix("whole number") if words == "whole numbers" else words


def _range(value: Mapping[str, Any]) -> str:
    signs = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    parts = [f"{sign} {value[key]:g}" for key, sign in signs.items() if key in value and value[key] < 10**7]
    return " " + ", ".join(parts) if parts else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
