"""Rules on small messages: what may be left out or rounded once a contribution has been bounded."""

from collections.abc import Iterator

from consilia.core.errors import Problem
from consilia.plan.grid import is_distributed
from consilia.plan.schema import Plan


def message_rules(plan: Plan) -> list[Problem]:
    """Return the rules on [messages] that the plan breaks."""
    return [*_top_k(plan), *_random_k(plan), *_control(plan), *_bits(plan)]


def _top_k(plan: Plan) -> Iterator[Problem]:
    messages, who = plan.messages, "plan key messages.top_k"
    if messages.top_k is None:
        return
    if plan.secure_sum.mode != "none":
        yield Problem(who, 'secure_sum.mode = "none"', f'"{plan.secure_sum.mode}"',
                      "Which coordinates a site sends tells about its rows: use messages.random_k")  # fmt: skip
    if plan.privacy.unit != "none":
        # What was left out of one round is sent in a later one, so no clip norm bounds what a unit adds.
        yield Problem(who, 'privacy.unit = "none"', f'"{plan.privacy.unit}"',
                      "Error feedback carries rows over from round to round without a bound: use messages.random_k")  # fmt: skip
    for key in ("random_k", "quantize_bits"):
        if getattr(messages, key) is not None:
            yield Problem(who, f"a plan without messages.{key}", f"{getattr(messages, key):g}",
                          "Name one: top_k sends whole numbers of its own coordinates" if key == "random_k"
                          else "Remove one: top_k sends its numbers as float32")  # fmt: skip


def _random_k(plan: Plan) -> Iterator[Problem]:
    if plan.messages.random_k is not None and plan.training.server_optimizer == "dp-adam":
        yield Problem('plan key training.server_optimizer = "dp-adam"', "noise on every coordinate in every round",
                      f"messages.random_k = {plan.messages.random_k:g}", 'Use "adam"')  # fmt: skip


def _control(plan: Plan) -> Iterator[Problem]:
    for key in ("random_k", "top_k"):
        if plan.training.scaffold and getattr(plan.messages, key) is not None:
            # The coordinator's variate is the mean of the sites' only while it moves by all that theirs move by.
            yield Problem(f"plan key messages.{key}", "training.scaffold = false", "true",
                          "A site's control variate moves by what it computed, the coordinator's by what was sent")  # fmt: skip


def _bits(plan: Plan) -> Iterator[Problem]:
    bits, privacy = plan.messages.quantize_bits, plan.privacy
    if bits is None:
        return
    who = "plan key messages.quantize_bits"
    if is_distributed(plan):
        yield Problem(who, 'privacy.noise other than "distributed"', f"{bits}",
                      "Remove it: there the noise says how fine the integers are")  # fmt: skip
    if privacy.unit != "none" and privacy.noise == "server":
        # Rounding follows each site's own largest value, so it moves with the rows after they were bounded.
        yield Problem(who, 'privacy.noise other than "server"', f"{bits}",
                      "Remove it: rounding would move a clipped update further than the noise is scaled for")  # fmt: skip
