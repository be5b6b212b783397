"""A run in a folder: begun, resumed after a kill, and brought to its end."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from consilia.core.errors import PlanError, StoreError
from consilia.core.version import VERSION
from consilia.federation.attesting import attester_of
from consilia.federation.conduct import RunResult, conduct, first_state, pin
from consilia.federation.engines import PROCESS, require, workers
from consilia.federation.naming import new_run
from consilia.federation.simulation import Prepared, Simulation, prepare
from consilia.plan import load as plans
from consilia.plan.facts import facts
from consilia.plan.run_plan import RunPlan
from consilia.plan.schema import Plan
from consilia.rounds.coordinator import OnRound
from consilia.rounds.state import from_bytes, to_pieces
from consilia.rounds.weights import result_vector
from consilia.store.journal import Journal

JOURNAL = "journal.sqlite"


def begin(
    plan: Plan, *, data_folder: Path, home: Path, out: Path | None, on_round: OnRound | None, engine: str = PROCESS
) -> RunResult:
    """Start a run in a fresh folder and train to its end.

    Raises:
        PlanError, DataError, BudgetExceeded, StoreError: Before anything was released.
        TransportError: If the engine cannot be had, or is lost on the way; what was committed is safe.
    """
    require(engine)
    run = new_run(plan)
    folder = out if out is not None else Path("runs") / run
    return start(
        prepare(plan, data_folder),
        run,
        data_folder=data_folder,
        home=home,
        folder=folder,
        on_round=on_round,
        engine=engine,
    )


def start(
    prepared: Prepared, run: str, *, data_folder: Path, home: Path, folder: Path, on_round: OnRound | None,
    engine: str = PROCESS,
) -> RunResult:  # fmt: skip
    """Start a run that was checked, under a name of its own.

    Raises:
        PlanError, BudgetExceeded, StoreError: Before anything was released.
        TransportError: As `begin`.
    """
    plan = prepared.run_plan.plan
    pin(plan, prepared.model.dim)
    state = first_state(prepared)
    if (folder / JOURNAL).exists():
        raise StoreError.of(f"run folder {folder}", needs="a folder without a run", got="one that holds a run",
                            hint=f"Go on with it (consilia run --resume {folder}), or name another --out")  # fmt: skip
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError.of(f"run folder {folder}", needs="a folder it may write", got=type(error).__name__,
                            hint="Name another with --out") from None  # fmt: skip
    # Every ledger is asked first, then the journal begins, then the ledgers admit the run: one that is refused leaves no
    # folder that looks like a run, and one that cannot begin spends nothing.
    with (
        attester_of(prepared.policy) as attester,
        workers(engine, prepared) as crew,
        Simulation(prepared, run=run, home=home, workers=crew) as simulation,
    ):
        agreed = json.dumps(
            {
                "plan": plans.canonical(plan),
                "facts": facts(prepared.run_plan),
                "data_folder": str(data_folder.resolve()),
                "home": str(home.resolve()),
                "within": prepared.run_plan.within,
                "coordinator": simulation.consortium.signing.public.hex() if simulation.consortium else None,
            }
        )
        with Journal.create(
            folder / JOURNAL, run=run, plan_json=agreed, digest=prepared.run_plan.digest, state=to_pieces(state)
        ) as journal:
            simulation.admit()
            return conduct(prepared, simulation.means(attester), journal, state, folder, on_round)


def go_on(
    folder: Path,
    on_round: OnRound | None,
    claim: Callable[[RunPlan], RunPlan] | None = None,
    engine: str = PROCESS,
) -> RunResult:
    """Resume a run from its last durable round; of a finished run only the result is read.

    Args:
        folder: The run's.
        on_round: Called with each round's record once it is durable.
        claim: For a trial: what puts its search's bounds in place of its own.
        engine: What computes from now on; a run may go on with another than it began with.

    Raises:
        StoreError: If the folder holds no run, or another process runs it.
        PlanError: If the plan, the version, or the numbers of rows no longer give what was agreed. Rows that changed
            otherwise are noted in the site's ledger, which goes on.
        TransportError: As `begin`.
    """
    require(engine)
    if not (folder / JOURNAL).is_file():
        raise StoreError.of(
            f"run folder {folder}",
            needs=f"a run ({JOURNAL})",
            got="none",
            hint="Name the folder that `consilia run` printed",
        )
    with Journal.open(folder / JOURNAL) as journal:
        agreed = json.loads(journal.plan_json)
        plan = plans.from_json(agreed["plan"])
        if journal.result is not None:
            return RunResult(journal.result, journal.records(), result_vector(folder, journal.result), folder)
        if agreed.get("within") is not None and claim is None:
            raise StoreError.of(f"run folder {folder}", needs="a run of its own", got=f"a trial of search {agreed['within']!r}",
                                hint="Only its search can go on with it: consilia tune --resume")  # fmt: skip
        prepared = prepare(plan, Path(agreed["data_folder"]))
        if claim is not None:
            prepared = replace(prepared, run_plan=claim(prepared.run_plan))
        if prepared.run_plan.digest != journal.digest:
            began = f"{journal.digest[:12]}, Consilia {agreed['facts']['version']}"
            raise PlanError.of("the run", needs=f"the plan, data and version it began with ({began})",
                               got=f"{prepared.run_plan.digest[:12]}, Consilia {VERSION}",
                               hint="Restore them, or start a new run")  # fmt: skip
        pin(plan, prepared.model.dim)
        with (
            attester_of(prepared.policy) as attester,
            workers(engine, prepared) as crew,
            Simulation(prepared, run=journal.run, home=Path(agreed["home"]), workers=crew) as simulation,
        ):
            if simulation.consortium is not None:
                simulation.consortium.require(agreed.get("coordinator"))
            simulation.compare(journal.heads())
            simulation.admit()
            state = from_bytes(journal.state)
            return conduct(prepared, simulation.means(attester), journal, state, folder, on_round)
