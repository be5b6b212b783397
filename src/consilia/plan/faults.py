"""From pydantic's errors to the house's wording: which key, what it needs, what came, what to do."""

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from consilia.core.errors import Problem
from consilia.plan.schema import section_models

_TYPES = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "a text in quotes",
    "list_type": "a list [..]",
    "tuple_type": "a list [low, high]",
    "dict_type": "a table of key = value",
    "model_type": "a section of key = value lines",
    "too_long": "a list [low, high]",
}
_BOUNDS = {
    "greater_than": ("above", "gt"),
    "greater_than_equal": ("of at least", "ge"),
    "less_than": ("below", "lt"),
    "less_than_equal": ("of at most", "le"),
}


@dataclass(frozen=True)
class Form:
    """A kind of file that people write: what messages call it, and its sections.

    Attributes:
        noun: What one is called, as in "plan".
        several: And more of them.
        models: section -> its schema.
    """

    noun: str
    several: str
    models: Mapping[str, type[BaseModel]]

    def sections(self) -> dict[str, dict[str, str]]:
        """Return section -> key -> what it means, as the schema says."""
        return {
            section: {key: info.description or "" for key, info in model.model_fields.items()}
            for section, model in self.models.items()
        }


PLAN = Form("plan", "plans", section_models())


def sections() -> dict[str, dict[str, str]]:
    """Return a plan's section -> key -> what it means."""
    return PLAN.sections()


def location(error: ErrorDetails) -> tuple[str, ...]:
    """Return the keys that lead to the fault, without pydantic's marks for the branches of a union."""
    return tuple(str(part) for part in error["loc"] if "[" not in str(part))


def show(value: object) -> str:
    """Return a value as a plan would write it, cut to a readable length."""
    if value is None:
        return "nothing"
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that was probably meant, or None."""
    written = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), list(written), n=1, cutoff=0.6)
    return written[found[0]] if found else None


def problems_of(errors: Iterable[ErrorDetails], form: Form = PLAN) -> list[Problem]:
    """Turn all of pydantic's errors into problems, one for each faulty key."""
    found: dict[tuple[str, ...], Problem] = {}
    for error in _one_branch(list(errors)):
        keys = location(error)
        found.setdefault(keys, _problem(keys, error, form))
    return list(found.values())


def _place(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return section and key; a list of sections names a number in between."""
    return keys[:1] + keys[2:] if keys[0] == "phases" else keys


def _written(keys: tuple[str, ...]) -> str:
    """Return the keys as messages write them; phases count from 1."""
    if keys[0] == "phases" and len(keys) > 1 and keys[1].isdigit():
        keys = ("phases", str(int(keys[1]) + 1), *keys[2:])
    return ".".join(keys)


def _one_branch(errors: list[ErrorDetails]) -> list[ErrorDetails]:
    # `sites.counts` is "public" or a table; a faulty table also fails as "public", which says nothing of use.
    return [
        error
        for error in errors
        if not (any("literal[" in str(part) for part in error["loc"]) and isinstance(error["input"], Mapping))
    ]


def _problem(keys: tuple[str, ...], error: ErrorDetails, form: Form) -> Problem:
    kind, value = error["type"], error["input"]
    if not keys:  # the whole text could not be taken over: nested too deeply, or characters that are none
        reason = str(error.get("ctx", {}).get("error", error["msg"]))
        return Problem(
            form.noun, "plain values", reason, "Write numbers, texts, lists and tables as the template shows"
        )
    if kind == "extra_forbidden":
        return _unknown(keys, value, form)
    if kind == "missing":
        return _missing(keys, form)
    if keys == ("phases",) and kind == "too_long":
        most, got = error["ctx"]["max_length"], error["ctx"]["actual_length"]
        return Problem(
            "plan section phases", f"at most {most} phases", f"{got}", "Let a schedule change the rate instead"
        )
    name = _written(keys)
    noun = "section" if len(_place(keys)) == 1 else "key"
    meaning = form.sections().get(keys[0], {}).get(_place(keys)[1], "") if len(_place(keys)) > 1 else ""
    place = "[[phases]]" if keys[0] == "phases" else f"[{name}]"
    hint = f"It means: {meaning[:1].lower()}{meaning[1:]}" if meaning else f"Write it below {place}"
    got = f"a number that is not finite ({value})" if value in _NOT_FINITE or value != value else show(value)
    if keys == ("sites", "counts"):
        return Problem(f"plan key {name}", 'the word "public" or a table of site = number', got, hint)
    if kind == "literal_error" and isinstance(value, str):
        guess = nearest(value, (word.strip("'") for word in _choices(error)))
        hint = f'Did you mean "{guess}"?' if guess else hint
    return Problem(f"{form.noun} {noun} {name}", needs_of(error), got, hint)


_NOT_FINITE = (float("inf"), float("-inf"))


def _choices(error: ErrorDetails) -> list[str]:
    return str(error.get("ctx", {}).get("expected", "")).replace(" or ", ", ").split(", ")


def needs_of(error: ErrorDetails) -> str:
    """Return what a value must be instead."""
    kind = error["type"]
    context: dict[str, Any] = error.get("ctx", {})
    if kind in _TYPES:
        return _TYPES[kind]
    if kind in _BOUNDS:
        words, limit = _BOUNDS[kind]
        return f"a number {words} {context[limit]:g}"
    if kind == "literal_error":
        return "one of " + ", ".join(choice.replace("'", '"') for choice in _choices(error))
    if kind == "string_pattern_mismatch" and "{64}" in context["pattern"]:
        return "a digest: 64 digits 0-9, a-f"
    if kind in ("string_pattern_mismatch", "string_too_short"):
        return "a name that begins with a letter or digit, of letters, digits, space and . _ -"
    if kind == "string_too_long":
        return f"at most {context['max_length']} characters"
    message = error["msg"]
    return message[:1].lower() + message[1:]


def _missing(keys: tuple[str, ...], form: Form) -> Problem:
    if keys == ("data",):
        return Problem("plan", "a section [data]", "none", 'Add [data] and below it source = "heart"')
    if len(_place(keys)) > 2:
        return Problem(f"plan key {_written(keys[:-1])}", "a list [low, high]", "a shorter list", "Write both ends")
    meaning = form.sections()[keys[0]][_place(keys)[1]]
    return Problem(
        f"{form.noun} key {_written(keys)}", "a value", "nothing", f"It means: {meaning[:1].lower()}{meaning[1:]}"
    )


def _unknown(keys: tuple[str, ...], value: object, form: Form) -> Problem:
    known = form.sections()
    if len(keys) == 1:
        guess = nearest(keys[0], known)
        home = next((section for section, names in known.items() if keys[0] in names), None)
        if home is not None and not isinstance(value, Mapping):
            hint = f"Did you mean {home}.{keys[0]}? Write it below [{home}]"
        else:
            hint = f"Did you mean [{guess}]?" if guess else f"Known sections: {', '.join(known)}"
        return Problem(f"{form.noun} section {keys[0]}", f"to be one that {form.several} have", "an unknown name", hint)
    names, word = known[keys[0]], _place(keys)[1]
    home = next((section for section, others in known.items() if word in others), None)
    guess = nearest(word, names)
    if home is not None:
        hint = f"Did you mean {home}.{word}? Write it below [{home}]"
    elif guess is not None:
        hint = f"Did you mean {keys[0]}.{guess}?"
    else:
        hint = f"Known keys there: {', '.join(names)}"
    return Problem(f"{form.noun} key {_written(keys)}", f"to be one that {form.several} have", "an unknown key", hint)
