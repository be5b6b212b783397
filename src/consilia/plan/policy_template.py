"""The policy.toml that a site begins with: every key with what it means, as strict as an empty file."""

import json
from collections.abc import Iterator
from typing import Any, get_args

from pydantic.fields import FieldInfo

from consilia.plan.policy import policy_models

_HEAD = """\
# What this site agrees to. A plan must keep every clause; one that does not is refused, with the clause named.
# The values are those that hold where a key is left out. A line that begins with "# key =" shows a key that is not set.
# Check it with: consilia site policy
"""
# Examples for keys that have no default.
_EXAMPLES: dict[str, Any] = {
    "data.sets": ["cardiology"],
    "data.features": ["age", "pressure"],
    "data.labels": ["disease"],
    "model.names": ["logistic", "mlp", "clinic.nets:small"],
    "privacy.max_epsilon_sets": {"cardiology": 2.0},
}


def policy_template() -> str:
    """Return the text of a policy.toml that means the same as an empty one."""
    lines = [_HEAD]
    for section, model in policy_models().items():
        lines.append(f"[{section}]  # {(model.__doc__ or '').splitlines()[0]}")
        for key, info in model.model_fields.items():
            lines += _lines(f"{section}.{key}", key, info)
        lines.append("")
    return "\n".join(lines)


def _lines(name: str, key: str, info: FieldInfo) -> Iterator[str]:
    default = info.get_default(call_default_factory=True)
    choices = " | ".join(word for word in get_args(info.annotation) if isinstance(word, str))
    yield f"# {info.description}" + (f" ({choices})" if choices else "")
    unset = default is None or default == {}
    yield f"{'# ' if unset else ''}{key} = {_toml(_EXAMPLES[name] if unset else default)}"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)
