"""A plan as members exchange it: where a file lies on a disk is nobody else's business, and no part of what is agreed."""

from consilia.plan.schema import Plan

_FILES = ("path", "labels_path")


def travelling(plan: Plan) -> Plan:
    """Return the plan with the names alone of its files."""
    data = plan.data.model_copy(update={key: _name(getattr(plan.data, key)) for key in _FILES})
    model = plan.model.model_copy(update={"initial": _name(plan.model.initial)})
    secure = plan.secure_sum.model_copy(update={"policy": _name(plan.secure_sum.policy)})
    return plan.model_copy(update={"data": data, "model": model, "secure_sum": secure})


def _name(path: str | None) -> str | None:
    return path if path is None else path.replace("\\", "/").rsplit("/", 1)[-1]
