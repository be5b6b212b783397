"""Rules on rounds that wait for no one: what can be bounded and makes sense where nobody knows beforehand who is ready.

Source: docs/guarantees.md, section 7; docs/decisions/0026-*.md.
"""

from collections.abc import Iterator

from consilia.core.errors import Problem
from consilia.plan.phases import total_rounds
from consilia.plan.schedule import cohort_size
from consilia.plan.schema import Plan

_WAIT = 'aggregation.mode = "synchronous"'


def asynchronous_rules(plan: Plan) -> list[Problem]:
    """Return the rules on aggregation.mode that the plan breaks."""
    if plan.aggregation.mode == "synchronous":
        return []
    return [*_together(plan), *_sum(plan), *_noise(plan), *_kept(plan)]


def asynchronous_problems(plan: Plan, sites: int) -> Iterator[Problem]:
    """Yield what the numbers of [aggregation] ask of so many sites that cannot be."""
    rule = plan.aggregation
    if rule.mode == "synchronous":
        return
    if (rule.ready or 0) > sites:
        yield Problem("plan key aggregation.ready", f"at most the {sites} sites that take part", f"{rule.ready}",
                      "Lower it, or leave it out for half of them")  # fmt: skip
        return
    size, most = cohort_size(rule, sites) or 1, rule.max_participations
    needed = -(-total_rounds(plan) * size // sites)
    if most is not None and most < needed:
        yield Problem("plan key aggregation.max_participations", f"at least {needed}: {total_rounds(plan)} rounds of {size} "
                      f"updates come from {sites} sites", f"{most}", "Raise it, or lower training.rounds")  # fmt: skip


def _together(plan: Plan) -> Iterator[Problem]:
    who, training = f'plan key aggregation.mode = "{plan.aggregation.mode}"', plan.training
    for needs, got, fits, hint in (
        ('aggregation.selection = "all"', f'"{plan.aggregation.selection}"', plan.aggregation.selection == "all",
         "Who is ready first is added, so nobody is drawn beforehand: aggregation.ready says how many"),
        ("training.scaffold = false", "true", not training.scaffold,
         f"A control variate speaks of one model for all: set it to false, or {_WAIT}"),
        ('training.algorithm = "fedavg" or "fedsgd"', '"stacking"', training.algorithm != "stacking",
         f"Sites answer once there, and nobody has to wait: {_WAIT}"),
        ("a plan without phases", f"{len(plan.phases)}", not plan.phases,
         f"An update begun in one phase would be added in another: remove them, or {_WAIT}"),
    ):  # fmt: skip
        if not fits:
            yield Problem(who, needs, got, hint)


def _sum(plan: Plan) -> Iterator[Problem]:
    mode, secure = plan.aggregation.mode, plan.secure_sum.mode
    who = f'plan key aggregation.mode = "{mode}"'
    if mode == "buffered" and secure != "none":
        yield Problem(who, 'secure_sum.mode = "none"', f'"{secure}"',
                      'Each update leaves when it is done, and alone: use "two-phase", which sums those ready')  # fmt: skip
    if mode == "two-phase" and secure not in ("none", "masks"):
        yield Problem(who, 'secure_sum.mode = "masks" or "none"', f'"{secure}"',
                      f'Its keys belong to all sites or to a fixed cohort: use masks, or {_WAIT}')  # fmt: skip


def _noise(plan: Plan) -> Iterator[Problem]:
    rule, privacy = plan.aggregation, plan.privacy
    if privacy.unit == "none":
        return
    if rule.mode == "buffered" and privacy.noise != "site":
        yield Problem('plan key aggregation.mode = "buffered"', 'privacy.noise = "site"', f'"{privacy.noise}"',
                      'The coordinator sees each update as it comes: use noise at the site, or "two-phase"')  # fmt: skip
    if plan.training.server_optimizer == "dp-adam" and privacy.noise == "site":
        yield Problem('plan key training.server_optimizer = "dp-adam"', "noise of a size that the plan fixes",
                      f'aggregation.mode = "{rule.mode}", where the noise of older updates counts for less',
                      'Use "adam", or privacy.noise = "distributed"')  # fmt: skip


def _kept(plan: Plan) -> Iterator[Problem]:
    training = plan.training
    for key, asked in {
        'training.keep = "best"': training.keep == "best",
        "training.patience": training.patience is not None,
        "evaluation.stop_loss": plan.evaluation.stop_loss is not None,
    }.items():
        if asked:
            yield Problem(f"plan key {key}", _WAIT, f'"{plan.aggregation.mode}": each round is scored by other sites',
                          'Keep the last model, or an average (training.keep = "tail-average" or "ema")')  # fmt: skip
