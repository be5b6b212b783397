"""Rules on a plan whose sites answer once, with a stack of private models."""

from collections.abc import Iterator, Sequence
from typing import Any

from consilia.core.errors import Problem
from consilia.plan.run_plan import SiteTerms
from consilia.plan.schema import Plan

# What a stack does not read, beside the keys that only fedavg or a batch other than full reads.
_NO_EFFECT = {
    "model": ("name",),
    "training": (
        "weight_decay", "augment", "schedule", "warmup_rounds", "server_optimizer", "server_learning_rate", "keep", "patience",
    ),
    "privacy": ("noise_multiplier", "clip_norm", "clipping"),
    "messages": ("quantize_bits", "random_k", "top_k"),
}  # fmt: skip


def stacking_rules(plan: Plan) -> list[Problem]:
    """Return the rules on training.algorithm = "stacking" and [stack] that the plan breaks."""
    if plan.training.algorithm != "stacking":
        return []
    return [*_setting(plan), *_unread(plan), *_parts(plan), *_transfer(plan)]


def once_problems(plan: Plan, sites: Sequence[SiteTerms], classes: int) -> list[Problem]:
    """Return what a checked schedule or the data break: each site is asked once, and there are two classes."""
    if plan.training.algorithm != "stacking":
        return []
    found = []
    often = [terms.name for terms in sites if terms.participations > 1]
    if often:
        found.append(Problem("plan key training.rounds", "a schedule that asks each site at most once with stacking",
                             f"more for {', '.join(often)}",
                             'Set rounds = 1, or ask one site a round: selection = "count", count = 1'))  # fmt: skip
    if classes != 2:
        found.append(Problem('plan key training.algorithm = "stacking"', "two classes", f"{classes}",
                             "Use fedavg or fedsgd"))  # fmt: skip
    return found


def _setting(plan: Plan) -> Iterator[Problem]:
    who, privacy = 'plan key training.algorithm = "stacking"', plan.privacy
    for needs, got, fits in (
        ('privacy.unit = "record"', f'"{privacy.unit}"', privacy.unit == "record"),
        ('privacy.noise = "site"', f'"{privacy.noise}"', privacy.noise == "site"),
        ("privacy.epsilon", "none", privacy.epsilon is not None),
        ('training.batch = "full"', f'"{plan.training.batch}"', plan.training.batch == "full"),
        ("a plan without phases", f"{len(plan.phases)}", not plan.phases),
        ('evaluation.metrics = "public" or "hidden"', '"charged"', plan.evaluation.metrics != "charged"),
    ):
        if not fits:
            yield Problem(who, needs, got, "A site answers once, with all its rows, and draws all noise itself")


def _unread(plan: Plan) -> Iterator[Problem]:
    for section_name, keys in _NO_EFFECT.items():
        section: Any = getattr(plan, section_name)
        for key in keys:
            if getattr(section, key) == type(section).model_fields[key].get_default(call_default_factory=True):
                continue
            yield Problem(f"plan key {section_name}.{key}", 'training.algorithm = "fedavg" or "fedsgd"',
                          "a plan where it has no effect", "Remove the key: [stack] says what is trained")  # fmt: skip


def _parts(plan: Plan) -> Iterator[Problem]:
    stack = plan.stack
    if stack.parts != "one" and (stack.count or 0) < 2:
        yield Problem("plan key stack.count", f'at least 2 with stack.parts = "{stack.parts}"',
                      str(stack.count or "nothing"), "3 is usual")  # fmt: skip
    if stack.importance is not None and len(stack.importance) != stack.count:
        yield Problem("plan key stack.importance", f"{stack.count} numbers, one a block", f"{len(stack.importance)}",
                      "Leave it out for equal shares")  # fmt: skip
    if stack.importance is not None and stack.measured > 0:
        yield Problem("plan key stack.measured", "a plan without stack.importance", f"{stack.measured:g}",
                      "Measure the importance or state it")  # fmt: skip


def _transfer(plan: Plan) -> Iterator[Problem]:
    several, given = plan.training.rounds > 1, plan.model.initial is not None
    if several and plan.stack.pull == 0:
        yield Problem("plan key stack.pull", "a weight above 0 with several rounds of stacking", "0",
                      "Without it each round forgets the one before: set training.rounds = 1, or a pull of 3")  # fmt: skip
    if plan.stack.pull > 0 and not several and not given:
        yield Problem("plan key stack.pull", "a model to be drawn to: several rounds, or model.initial", "neither",
                      'Ask one site a round (aggregation.selection = "count", count = 1), or remove the key')  # fmt: skip
