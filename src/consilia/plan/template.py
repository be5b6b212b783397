"""The plan that `consilia init` writes: every key the schema knows, with what it means, ready to run.

It is made from the schema, so that no key can be missing from it or differ from what the loader accepts.
"""

import json
from typing import Any, get_args

from pydantic.fields import FieldInfo

from consilia.plan.schema import section_models

_HEAD = """\
# A plan of Consilia: all that the parties of one training run agree on. Unknown keys are errors.
# A line that begins with "# key =" shows a key that is not set. Check the plan with: consilia check plan.toml
"""

# What differs from the defaults, so that the plan runs at once: four hospitals, records protected at epsilon 1.
_SET: dict[str, Any] = {
    "run.name": "first",
    "data.source": "heart",
    "data.split": "exact",
    "data.test_fraction": 0.34,
    "sites.counts": "public",
    "training.algorithm": "fedsgd",
    "training.rounds": 40,
    "training.batch": "full",
    "training.server_optimizer": "momentum",
    "training.server_learning_rate": 0.1,
    "training.keep": "tail-average",
    "privacy.unit": "record",
    "privacy.epsilon": 1.0,
    "privacy.delta": 1e-3,
    "privacy.delta_reason": "A published table of 740 patients; the smallest site trains on 30 rows, where 1e-5 would drown it.",
    "privacy.clip_norm": 1.0,
    "evaluation.metrics": "public",
}

# Examples for keys that have no default and are not set.
_EXAMPLES: dict[str, Any] = {
    "data.path": "rows.csv",
    "data.labels_path": "train-labels-idx1-ubyte.gz",
    "data.label": "disease",
    "data.classes": ["no", "yes"],
    "data.numeric": {"age": [18, 100]},
    "data.categories": {"sex": ["f", "m"]},
    "data.id_column": "row",
    "data.site_column": "hospital",
    "data.patient_column": "patient",
    "data.train_rows": 1000,
    "sites.count": 5,
    "sites.alpha": 0.5,
    "sites.sizes": [5000, 800],
    "sites.only": ["Cleveland", "Hungary"],
    "sites.population": "cardiology-2024",
    "training.local_epochs": 1,
    "training.local_steps": 10,
    "training.batch_size": 32,
    "training.sampling_rate": 0.05,
    "training.batch_cap": 128,
    "training.patience": 10,
    "evaluation.stop_loss": 0.1,
    "model.initial": "public-weights.safetensors",
    "model.initial_source": "MNIST, a public data set",
    "privacy.count_noise": 20.0,
    "phases.rounds": 30,
    "phases.learning_rate": 0.05,
    "phases.server_learning_rate": 0.5,
    "phases.sampling_rate": 0.1,
    "phases.batch_size": 64,
    "phases.local_steps": 5,
    "phases.clip_norm": 0.5,
    "privacy.against": "server",
    "privacy.noise_multiplier": 1.0,
    "privacy.control_clip_norm": 1.0,
    "secure_sum.policy": "policy.toml",
    "messages.quantize_bits": 8,
    "messages.random_k": 0.1,
    "messages.top_k": 0.01,
    "aggregation.count": 3,
    "aggregation.fraction": 0.6,
    "aggregation.cap": 5000,
    "aggregation.ready": 3,
    "aggregation.max_participations": 20,
    "evaluation.noise_multiplier": 5.0,
    "ledger.max_epsilon": 3.0,
    "stack.count": 3,
    "stack.importance": [2.0, 1.0, 1.0],
}


def template() -> str:
    """Return the text of a plan.toml that loads, checks and runs on the built-in data."""
    lines = [_HEAD]
    for section, model in section_models().items():
        head, listed = f"[{section}]", section == "phases"
        if listed:
            head = f"# [{head}]"
        lines += [f"{head}  # {(model.__doc__ or '').splitlines()[0]}"]
        keys = [_line(f"{section}.{key}", key, info) for key, info in model.model_fields.items()]
        lines += [f"# {line}" if listed and not line.startswith("#") else line for line in keys]
        lines.append("")
    return "\n".join(lines)


def _line(name: str, key: str, info: FieldInfo) -> str:
    value = _SET.get(name)
    if value is None and not info.is_required():
        default = info.get_default(call_default_factory=True)
        value = None if default == {} else default
    setting = f"# {key} = {_toml(_EXAMPLES[name])}" if value is None else f"{key} = {_toml(value)}"
    choices = " | ".join(word for word in get_args(info.annotation) if isinstance(word, str))
    return f"{setting}  # {info.description}" + (f" ({choices})" if choices else "")


def _toml(value: Any) -> str:
    """Write one plain value as TOML."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)
