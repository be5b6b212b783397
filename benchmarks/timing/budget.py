"""What the budget checks of a round cost beside one bare PyTorch step."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812  (the name torch documents)

from benchmarks.timing.clock import digits, quartiles
from benchmarks.timing.workloads import LEDGER, RATE
from consilia.core.canonical import Json
from consilia.dp.event import Event
from consilia.dp.ledger import Allotment, admit_charge
from consilia.federation.simulation import Simulation, prepare
from consilia.learning.models import build
from consilia.plan.run_plan import Charge, RunPlan
from consilia.rounds.spending import Spending
from consilia.store.ledger_store import SiteStore

SAMPLED = Event(1.1, 0.05, 20)  # Poisson batches: the odometer takes RDP, the unsampled one is exact
REPEATS = 40


def budget_checks(folder: Path, rounds: int) -> dict[str, Json]:
    """Time both checks of a round, at the coordinator and at a site, and a bare step of logistic regression and of an MLP.

    Args:
        folder: Where the plan's file and a ledger may lie.
        rounds: How many rounds' checks are taken in turn, a multiple of 40; charges grow by one each time, as in a run.
    """
    prepared = prepare(LEDGER.plan(folder, rounds), folder)
    with Simulation(prepared, run="run", home=folder) as simulation:
        simulation.admit()
        site = next(iter(simulation.sites))
    run_plan = prepared.run_plan
    with SiteStore.open(folder / "sites" / f"{site}.sqlite", site) as store:
        (allotment,) = store.allotments(run_plan.population)
    sampled = _charged_as(run_plan, SAMPLED)
    tasks: dict[str, Callable[[int], object]] = {
        "coordinator_unsampled": _odometer(run_plan), "coordinator_sampled": _odometer(sampled), "site": _admission(allotment),
        "bare_step_logistic": _step("logistic"), "bare_step_mlp": _step("mlp"),
    }  # fmt: skip
    taken: dict[str, list[float]] = {name: [] for name in tasks}
    for begin in range(0, rounds, REPEATS):
        for name, task in tasks.items():
            started = time.process_time()
            for number in range(begin, begin + REPEATS):
                task(number + 1)
            taken[name].append(1e6 * (time.process_time() - started) / REPEATS)
    steps = 5 * LEDGER.cohort
    worst = np.median(taken["coordinator_unsampled"]), np.median(taken["coordinator_sampled"])
    whole = float(max(worst)) + LEDGER.cohort * float(np.median(taken["site"]))
    return {
        "calls_each": rounds,
        **{f"{name}_us": quartiles(values) for name, values in taken.items()},
        "steps_a_round": steps,
        "share_of_a_rounds_bare_steps": digits(whole / (steps * float(np.median(taken["bare_step_logistic"])))),
    }  # fmt: skip


def _charged_as(plan: RunPlan, event: Event) -> RunPlan:
    def changed(charge: Charge) -> Charge:
        return replace(charge, round_events=(event,), epsilon={who: 1e9 for who in charge.epsilon})

    return replace(plan, charges={site: changed(charge) for site, charge in plan.charges.items()})


def _odometer(plan: RunPlan) -> Callable[[int], object]:
    spending = Spending(plan)
    names = [terms.name for terms in plan.sites]
    return lambda number: spending.epsilon(dict.fromkeys(names, (number,)), 0)


def _admission(allotment: Allotment) -> Callable[[int], object]:
    ((event, _),) = allotment.events
    return lambda number: admit_charge(allotment, {event.digest: number - 1}, event)


def _step(name: str) -> Callable[[int], object]:
    model = build(name, input_shape=(16,), classes=2, hidden=(64,), seed=1)
    features, labels = torch.randn(10, 16), torch.zeros(10, dtype=torch.int64)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)

    def step(_number: int) -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(features), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step
