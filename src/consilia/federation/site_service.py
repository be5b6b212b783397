"""A real site: looks at what it is offered, agrees or says why not, and takes part in the runs it agreed to."""

import json
import logging
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from consilia.core.canonical import Json, LastDigest, canonical_bytes
from consilia.core.canonical import digest as digest_of
from consilia.core.errors import ConsiliaError, PlanError, ProtocolError
from consilia.core.update import Bytes, ProtocolMessage
from consilia.core.version import VERSION
from consilia.core.wire import decode, encode
from consilia.federation.assemble import Assembled, RowShape, assemble, entropy_of
from consilia.federation.attesting import policy_of
from consilia.federation.conduct import pin, write_whole
from consilia.federation.config import SiteConfig
from consilia.federation.offer import Offer, Surveyed
from consilia.federation.one_site import keeps_a_store, site_of, units
from consilia.plan.consent import Verdict, first_look, judge, ledger_limit
from consilia.plan.load import canonical
from consilia.plan.policy import Policy
from consilia.plan.run_plan import RunPlan
from consilia.plan.schema import Plan
from consilia.rounds.rows import BUILT_IN, SiteRows, own_rows
from consilia.rounds.secure.sessions import Party
from consilia.rounds.site import Site
from consilia.store.consents import Offered
from consilia.store.ledger_store import SiteStore
from consilia.store.own_numbers import OwnNumbers

_log = logging.getLogger("consilia.site")


class SiteService:
    """Answers the coordinator for one site.

    Args:
        config: What the site was told.
        folder: Where site.toml lies: its other paths are relative to it.
        store: The site's ledger, with what it agreed to.
        keys: Its keys; called for each run, so that a newer roster counts from the next run on.

    Guarantees:
        A run that the policy does not let through, or that waits for a steward, trains on nothing and charges nothing. What is
        judged was computed here, by installed code, from the plan that was offered: the coordinator's word counts for nothing
        but the registered numbers of the other sites. Of a fault only its class leaves; of a policy the clauses that a plan
        breaks.
    """

    def __init__(self, config: SiteConfig, folder: Path, store: SiteStore, keys: Callable[[], Party]) -> None:
        self._config = config
        self._folder = folder
        self._home = folder / config.home
        self._store = store
        self._keys = keys
        self._sites: dict[str, Site] = {}
        self._rows: tuple[str, SiteRows] | None = None
        self._told: tuple[str, ...] = ()
        self.name = store.site

    def handle(self, frame: Bytes) -> bytes:
        """Answer one frame. Never raises for what a message, a file or the rows cause."""
        task = ProtocolMessage("", self.name, 0)
        try:
            item = decode(frame, who=f"site {self.name}")
            if not isinstance(item, ProtocolMessage):
                raise ProtocolError.of(f"site {self.name}", needs="a task", got="a release", hint="Send tasks to sites")
            task = item
            if task.kind == "survey":
                return self._survey(task)
            if task.kind == "offer":
                return self._offer(task)
            return self._take_part(task, frame)
        except Exception as error:
            return self._fault(task, error)

    def _fault(self, task: ProtocolMessage, error: Exception) -> bytes:
        known = isinstance(error, ConsiliaError)
        if known:
            _log.warning("refused %s of run %s: %s", task.kind or "a frame", task.body.get("run"), error)
        else:
            _log.error("failed in %s of run %s", task.kind or "a frame", task.body.get("run"), exc_info=error)
        body: dict[str, Json] = {"error": type(error).__name__, "run": task.body.get("run")}
        return encode(ProtocolMessage("refused" if known else "failed", self.name, task.round, body))

    def _answer(self, kind: str, offer: Offer, body: Mapping[str, Json]) -> bytes:
        return encode(ProtocolMessage(kind, self.name, 0, {"run": offer.run, **body}))

    def _survey(self, task: ProtocolMessage) -> bytes:
        offer = Offer.read(task.body, who=f"site {self.name}")
        clauses = self._first_look(offer)
        if clauses:
            self._decide(offer, "refused", clauses)  # for the steward to see
            return self._answer("refused", offer, {"clauses": list(clauses)})
        rows = self._read(offer)
        told = None
        if not isinstance(offer.plan.sites.counts, dict):
            told = units(offer.plan, rows.train)
        return self._answer("surveyed", offer, Surveyed(_shape(rows), told).body())

    def _first_look(self, offer: Offer) -> tuple[str, ...]:
        """Return what forbids even to read rows or build a model for this plan."""
        if offer.version != VERSION:
            return (f"Consilia {VERSION} runs at site {self.name}; the coordinator runs {offer.version[:32]}",)
        population = population_of(offer.plan)
        known = self._config.data.get(population)
        if known is None:
            return (f"site.toml has no section [data.{population}]",)
        clauses = list(first_look(self._policy(), offer.plan))
        stated = offer.plan.sites.counts
        if isinstance(stated, dict) and self.name not in stated:
            clauses.append(f"the plan registers no number of rows for site {self.name} (sites.counts)")
        if not isinstance(stated, dict) and not (known.count_is_public or offer.plan.data.source in BUILT_IN):
            clauses.append(
                f"site.toml key data.{population}.count_is_public: false; the plan registers no numbers (sites.counts)"
            )
        return tuple(clauses)

    def _offer(self, task: ProtocolMessage) -> bytes:
        offer = Offer.read(task.body, who=f"site {self.name}")
        known = self._store.consents.accepted(offer.run)
        if known is not None:
            return self._again(offer, known)
        clauses = self._first_look(offer)
        if clauses:
            return self._decide(offer, "refused", clauses)
        self._keep_initial(offer, task.payload)
        try:
            rows = self._read(offer)
            plan = self._assembled(offer, rows).run_plan
        except Exception:
            self._drop_initial(offer.run)  # an offer that comes to nothing leaves nothing
            raise
        if plan.digest != offer.digest:
            told = f"the plan's digest here is {plan.digest}; the offer says {offer.digest}"
            return self._decide(offer, "refused", (told,))
        strangers = sorted({terms.name for terms in plan.sites} - set(self._keys().roster.by_name))
        if strangers:  # else a coordinator could make up the sites that a policy asks for
            told = f"the plan's sites must be on the roster; these are not: {', '.join(strangers)}"
            return self._decide(offer, "refused", (told,))
        verdict = self._judge(plan)
        if verdict.answer == "accepted":
            self._hold_to_limit(plan.population)
            self._build(offer, rows).require_room()
        return self._decide(offer, verdict.answer, verdict.clauses)

    def _decide(self, offer: Offer, answer: str, clauses: tuple[str, ...]) -> bytes:
        """Answer an offer; what was agreed to is on disk before."""
        if answer == "refused":
            self._drop_initial(offer.run)
        self._store.consents.note(offer.run, offer.digest, answer, _stored(offer), clauses)
        told = (answer, offer.run, offer.digest, "; ".join(clauses) or "no clause is broken")
        if told != self._told:  # once, however often it is asked
            self._told = told
            _log.info("%s: run %s, plan %s (%s)", *told)
        return self._answer("offered", offer, {"answer": answer, "clauses": list(clauses)})

    def _again(self, offer: Offer, known: bytes) -> bytes:
        """Answer an offer of a run that this site agreed to before."""
        if _stored(offer) == known:
            return self._answer("offered", offer, {"answer": "accepted", "clauses": []})
        told = f"run {offer.run} was agreed to with another plan: a run has one"
        return self._answer("offered", offer, {"answer": "refused", "clauses": [told]})

    def examine(self, offered: Offered) -> tuple[RunPlan, Verdict]:
        """Return an offer's plan as installed code checks it now, and what the policy says of it, for a steward.

        Raises:
            PlanError: If it is no longer the plan that was offered.
        """
        offer = Offer.read(json.loads(offered.offer), who=f"the ledger of site {self.name}")
        plan = self._assembled(offer, self._read(offer)).run_plan
        if plan.digest != offered.digest:
            raise PlanError.of(f"run {offer.run}", needs=f"installed code to make plan {offered.digest[:12]} of its offer",
                               got=plan.digest[:12], hint="Version or data changed since: have it offered again")  # fmt: skip
        return plan, self._judge(plan)

    def _judge(self, plan: RunPlan) -> Verdict:
        half, policy = plan.site(self.name), self._policy()
        return judge(
            policy, half, plan, spent=self._store.spent(half.population), approved=self._store.consents.approved()
        )

    def _hold_to_limit(self, population: str) -> None:
        """Have the ledger hold runs to the policy's limit: two of them may have been judged at the same time.

        A limit that an earlier plan brought does not outlast it: no coordinator can use a site's budget up by lowering it.
        """
        limit = ledger_limit(self._policy(), population)
        if self._store.limit(population) != limit:
            self._store.set_limit(population, limit)

    def _take_part(self, task: ProtocolMessage, frame: Bytes) -> bytes:
        run = str(task.body.get("run"))
        answer = self._running(run).handle(frame)
        # Only what the site itself took for the run's end: until its ledger is closed and its secrets are gone it is open.
        if task.kind == "close" and _kind(answer) == "closed":
            self._store.consents.close(run, str(task.body.get("status", "done"))[:16])
            self._sites.pop(run, None)
            self._rows = None
        return answer

    def _running(self, run: str) -> Site:
        site = self._sites.get(run)
        if site is None:
            stored = self._store.consents.accepted(run)
            if stored is None:
                raise ProtocolError.of(f"site {self.name}", needs="a run that it agreed to", got=f"run {run[:64]}",
                                       hint="Offer it first")  # fmt: skip
            offer = Offer.read(json.loads(stored), who=f"the ledger of site {self.name}")
            site = self._build(offer, self._read(offer))
            site.open()
            self._sites[run] = site
        return site

    def _build(self, offer: Offer, rows: SiteRows) -> Site:
        """Put this site together for a run.

        Raises:
            PlanError: If installed code no longer makes of the plan what was agreed to.
        """
        assembled = self._assembled(offer, rows)
        plan = assembled.run_plan
        if plan.digest != offer.digest:
            raise self._other(offer.digest, plan.digest)
        pin(plan.plan, assembled.model.dim)
        party = None
        if plan.secure is not None:
            keys = self._keys()
            names = {terms.name for terms in plan.sites}
            party = Party(keys.identity, keys.roster.among(names), keys.consortium, keys.coordinator)
        return site_of(
            assembled, self.name, rows, run=offer.run, store=self._store if keeps_a_store(plan, self.name) else None,
            party=party, policy=policy_of(plan.plan, self._folder), entropy=entropy_of(plan.plan), digest=LastDigest(),
            own=OwnNumbers(self._home / "sites" / f"{self.name}-own.jsonl").note, alone=self._store.sessions,
        )  # fmt: skip

    def _other(self, offered: str, here: str) -> PlanError:
        return PlanError.of(f"site {self.name}", needs=f"the plan that was offered ({offered[:12]})",
                            got=f"{here[:12]}, Consilia {VERSION}",
                            hint="Restore the version and data of that day, or start a new run")  # fmt: skip

    def _assembled(self, offer: Offer, rows: SiteRows) -> Assembled:
        initial = self._initial(offer) if offer.plan.model.initial is not None else None
        return assemble(offer.plan, _shape(rows), offer.counts, initial)

    def _read(self, offer: Offer) -> SiteRows:
        """Return the rows that a run's plan asks for; they are kept, for the offer after a survey.

        Not for the next run, though it be of the same plan: a steward may have mended the file.
        """
        wanted = digest_of([offer.run, canonical(offer.plan)])
        if self._rows is None or self._rows[0] != wanted:
            known = self._config.data[population_of(offer.plan)]
            file = None if known.path is None else self._folder / known.path
            self._rows = (wanted, own_rows(offer.plan, self.name, file))
        return self._rows[1]

    def _initial(self, offer: Offer) -> Path:
        return self._home / "runs" / offer.run / "initial.safetensors"

    def _keep_initial(self, offer: Offer, payload: Bytes) -> None:
        if offer.plan.model.initial is not None:
            path = self._initial(offer)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, bytes(payload))

    def _drop_initial(self, run: str) -> None:
        shutil.rmtree(self._home / "runs" / run, ignore_errors=True)

    def _policy(self) -> Policy:
        return Policy.read(self._folder / self._config.policy)


def population_of(plan: Plan) -> str:
    """Return the name of the data set that a plan trains on: ledgers and site.toml know it by this name."""
    return plan.sites.population or plan.data.source


def _kind(answer: bytes) -> str:
    item = decode(answer, who="this site")
    return item.kind if isinstance(item, ProtocolMessage) else ""


def _shape(rows: SiteRows) -> RowShape:
    return RowShape(tuple(rows.train.input_shape), len(rows.train.classes))


def _stored(offer: Offer) -> bytes:
    return canonical_bytes(offer.body())
