"""Bytes that a run will move, from public numbers alone."""

from typing import TypedDict

from consilia.core.canonical import Json
from consilia.core.update import ProtocolMessage, Release
from consilia.core.wire import encode
from consilia.plan.run_plan import RunPlan
from consilia.plan.schedule import most_added
from consilia.plan.sizes import exchange_bytes, key_bytes, opening_bytes, score_bytes, update_bytes


class Forecast(TypedDict):
    """Bytes that a run will move; `up` is from sites to the coordinator, models sent for evaluation count in `down`.

    `update` is what carries one update, `exchange` what a secure sum moves besides for one site, both ways.
    """

    vector: int
    update: int
    exchange: int
    up_per_round: int
    down_per_round: int
    up: int
    down: int
    busiest_site: int


def forecast(plan: RunPlan) -> Forecast:
    """Return the bytes a run will move; within a few percent where every site answers."""
    name = max((terms.name for terms in plan.sites), key=len, default="")
    number, evaluation = len(plan.schedule), plan.plan.evaluation
    vector = 4 * plan.spec.dim  # float32, both ways: with SCAFFOLD the control variate travels beside the model
    update = update_bytes(plan)
    cohort = most_added(plan.plan.aggregation, plan.schedule)
    waits = plan.plan.aggregation.mode == "synchronous"
    asked = sum(len(names) for names in plan.schedule) if waits else number * cohort
    beside_update = exchange_bytes(plan, cohort, entries=True)
    beside_score = exchange_bytes(plan, len(plan.sites), entries=False)
    task: dict[str, Json] = {"plan": plan.digest, "run": "x" * 32, "counted": number}
    model = vector + len(encode(ProtocolMessage("evaluate", name, number, task)))
    charged = any(charge.booked for charge in plan.charges.values())
    beside: dict[str, Json] = {"charges": number, "ledger_head": plan.digest} if charged else {"loss": 1 / 3}
    up = update + beside_update.up + len(encode(Release(b"", name, number, plan.digest, plan.digest, beside)))
    score: dict[str, Json] = {"n": 1000, "accuracy": 1 / 3, "loss": 1 / 3}
    told = (
        score_bytes(plan) + beside_score.up + len(encode(Release(b"", name, number, plan.digest, plan.digest, score)))
    )
    scores = 0 if evaluation.metrics == "hidden" else number // evaluation.every + 1
    down, shown, scored = model + beside_update.down, model + beside_score.down, scores * len(plan.sites)
    if not waits and scores:  # a round is scored by those in its sum, the result by all
        scored = (scores - 1) * cohort + len(plan.sites)
    busiest = max((terms.participations for terms in plan.sites), default=0)
    opened, tallied = opening_bytes(plan)
    once = [key_bytes(plan), opened.times(number), tallied.times(scores)]
    total_up = up * asked + told * scored + sum(part.up for part in once)
    total_down = down * asked + shown * scored + sum(part.down for part in once)
    own = sum(part.up + part.down for part in once) // max(len(plan.sites), 1)
    return {
        "vector": vector,
        "update": update,
        "exchange": beside_update.down + beside_update.up,
        "up_per_round": total_up // max(number, 1),
        "down_per_round": total_down // max(number, 1),
        "up": total_up,
        "down": total_down,
        "busiest_site": (up + down) * busiest + (told + shown) * scores + own,
    }


def hours(ahead: Forecast, link: float) -> float:
    """Return how long the busiest site's link is in use over the whole run, in hours, at so many Mbit/s."""
    return ahead["busiest_site"] * 8 / (link * 1e6) / 3600
