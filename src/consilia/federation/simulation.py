"""A whole run in one process: every site simulated, with its own rows, ledger and secrets, behind the in-process transport."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from consilia.core.canonical import LastDigest
from consilia.crypto.attestation.attester import Attester
from consilia.crypto.attestation.policy import Policy
from consilia.federation.assemble import Assembled, RowShape, assemble, entropy_of, require_rules
from consilia.federation.attesting import policy_of
from consilia.federation.consortium import Consortium
from consilia.federation.means import Means
from consilia.federation.one_site import keeps_a_store, local_work, site_of, units
from consilia.learning.cohort.task import fits
from consilia.plan.schema import Plan
from consilia.rounds.ports import Transport
from consilia.rounds.rows import SiteRows, site_rows
from consilia.rounds.site import Site
from consilia.rounds.together import LEAST_TOGETHER, Together
from consilia.store.ledger_store import SiteStore
from consilia.store.own_numbers import OwnNumbers
from consilia.transport.incohort import InCohort
from consilia.transport.inprocess import InProcess
from consilia.transport.spread import Spread, Workers

_WRITERS = 16  # ledgers that wait for the disk at the same time


@dataclass(frozen=True)
class Prepared(Assembled):
    """A checked plan with what a simulation needs beside it."""

    rows: Mapping[str, SiteRows]
    policy: Policy | None = None


def prepare(plan: Plan, folder: Path) -> Prepared:
    """Check the plan, read the rows, build the model; the rules speak before any data is read.

    Raises:
        PlanError: With every problem of the plan.
        DataError: With every fault of the data.
    """
    require_rules(plan)
    rows = site_rows(plan, folder)
    table = next(iter(rows.values())).train
    found = assemble(
        plan, RowShape(table.input_shape, len(table.classes)),
        {site: units(plan, part.train) for site, part in rows.items()},
        None if plan.model.initial is None else folder / plan.model.initial,
    )  # fmt: skip
    return Prepared(found.run_plan, found.shape, found.model, found.initial, rows, policy_of(plan, folder))


def many_small(prepared: Prepared) -> bool:
    """Return True if sites may be trained together: never in the reproducible mode, whose sums come out bit for bit."""
    plan = prepared.run_plan
    works = [local_work(plan.site(plan.sites[0].name), phase) for phase in plan.phases]
    rank = 1 + len(next(iter(prepared.rows.values())).train.input_shape)
    return (
        not plan.plan.run.reproducible
        and plan.plan.training.algorithm != "stacking"
        and max(map(len, plan.schedule)) >= LEAST_TOGETHER
        and any(fits(prepared.model, work, rank) for work in works)
    )


class Simulation:
    """All sites of a run, ready to answer; closes their ledgers on exit.

    Args:
        prepared: The checked plan and the sites' rows.
        run: Id of the run.
        home: Folder of the sites' ledgers.
        workers: What computes the sites' tasks; None: this process.
    """

    def __init__(self, prepared: Prepared, *, run: str, home: Path, workers: Workers | None = None) -> None:
        plan, entropy = prepared.run_plan, entropy_of(prepared.run_plan.plan)
        self._population = plan.population
        self._policy = prepared.policy
        self._stores: list[SiteStore] = []
        self.sites: dict[str, Site] = {}
        self.consortium: Consortium | None = None
        digest = LastDigest()
        try:
            stores = {}
            for terms in plan.sites:
                if keeps_a_store(plan, terms.name):
                    stores[terms.name] = SiteStore.open(home / "sites" / f"{terms.name}.sqlite", terms.name)
                    self._stores.append(stores[terms.name])
            if plan.secure is not None:
                self.consortium = Consortium.of(self._stores, home)
            for terms in plan.sites:
                self.sites[terms.name] = site_of(
                    prepared, terms.name, prepared.rows[terms.name], run=run, store=stores.get(terms.name),
                    party=None if self.consortium is None else self.consortium.parties[terms.name],
                    policy=prepared.policy, entropy=entropy, digest=digest,
                    own=OwnNumbers(home / "sites" / f"{terms.name}-own.jsonl").note,
                )  # fmt: skip
            # All are asked before any books: a run that one ledger refuses costs the others nothing.
            for site in self.sites.values():
                site.require_room()
        except BaseException:
            self.close()
            raise
        self.transport: Transport = InProcess({name: site.handle for name, site in self.sites.items()}, time.monotonic)
        if workers is not None:
            self.transport = Spread(self.sites, workers, time.monotonic, writers=_WRITERS if self._stores else 1)
        elif many_small(prepared):
            trainer = Together(prepared.model, time.process_time)
            self.transport = InCohort(self.sites, trainer, time.monotonic, writers=_WRITERS if self._stores else 1)

    def means(self, attester: Attester | None) -> Means:
        """Return what this run's coordinator works with."""
        keys = self.consortium
        return Means(
            self.transport, roster=None if keys is None else keys.roster, signing=None if keys is None else keys.signing,
            policy=self._policy, attester=attester,
        )  # fmt: skip

    def admit(self) -> None:
        """Admit the run to every site's ledger; all were asked before the first one writes.

        Raises:
            BudgetExceeded: If another run took a site's budget in between.
        """
        for site in self.sites.values():
            site.open()

    def compare(self, heads: Mapping[str, str]) -> None:
        """Check each site's ledger against the head that the coordinator last saw of it.

        Raises:
            StoreError: If a ledger was changed, or rolled back to before that head.
        """
        for store in self._stores:
            if heads.get(store.site):
                store.verify(self._population, known=heads[store.site])

    def close(self) -> None:
        """Let go of the sites' ledgers."""
        for store in self._stores:
            store.close()

    def __enter__(self) -> "Simulation":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
