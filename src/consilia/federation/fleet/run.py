"""The coordinator's side of a run whose sites are reached by somebody else's messages: proposed, then conducted to its end."""

import json
import logging
import time
from collections.abc import Callable, Collection
from pathlib import Path

from consilia.core.errors import PlanError
from consilia.federation.attesting import attester_of, policy_of
from consilia.federation.conduct import RunResult, conduct, first_state, pin
from consilia.federation.means import Means
from consilia.federation.offer import Surveyed
from consilia.federation.proposal import Proposal
from consilia.plan.facts import facts
from consilia.plan.load import canonical
from consilia.plan.schema import Plan
from consilia.rounds.ports import Transport
from consilia.rounds.state import to_pieces
from consilia.store.journal import Journal
from consilia.transport.credentials.credentials import Credentials

_log = logging.getLogger("consilia.fleet")
JOURNAL = "journal.sqlite"
_STEP = 0.5  # seconds between two looks at who is there
_PATIENCE = 30.0  # seconds that sites which may yet agree are waited for once enough have


class Aborted(Exception):  # noqa: N818  (somebody wanted it)
    """The job was aborted between two rounds."""


def run_job(
    plan: Plan, run: str, transport: Transport, connected: Callable[[], Collection[str]], credentials: Credentials,
    folder: Path, *, seconds: float, aborted: Callable[[], bool],
) -> RunResult:  # fmt: skip
    """Propose a plan to the sites, and conduct it once enough of them agreed.

    Args:
        plan: As it travels: no file lies where it says.
        run: Id of the run.
        transport: Reaches the sites.
        connected: Who can be reached now.
        credentials: The coordinator's keys and the consortium's roster.
        folder: A fresh one for journal, model and result; beside it lies the policy that attested code needs, if any.
        seconds: How long sites may take to agree.
        aborted: Whether to stop.

    Raises:
        PlanError: If the plan cannot be run, or too few sites agreed.
        Aborted: If told to stop; what was charged stays charged.
    """
    sites = credentials.book.sites
    names = tuple(plan.sites.only or [member.name for member in sites.members])
    if plan.model.initial is not None:
        raise PlanError.of("plan key model.initial", needs="no weights to start from, in a job of a fleet",
                           got=repr(plan.model.initial), hint="Use `consilia coordinator` for such a plan")  # fmt: skip
    proposal = Proposal(run, plan, names, None, _PATIENCE)
    end = time.monotonic() + seconds
    while not proposal.ready():
        if aborted():
            raise Aborted
        proposal.advance(transport, connected())
        why = proposal.hopeless()
        if why is None and time.monotonic() > end:
            why = f"not enough sites agreed in {seconds:g} s: {proposal.enrolment.answers} {proposal.enrolment.reasons}"
        if why is not None:
            raise PlanError.of(f"run {run}", needs="sites that agree", got=why, hint="Ask their stewards")
        if not proposal.ready():
            time.sleep(_STEP)
    assembled = proposal.assembled
    if assembled is None:
        raise TypeError("a proposal that is ready has its numbers")
    pin(plan, assembled.model.dim)
    policy = policy_of(plan, folder.parent)
    folder.mkdir(parents=True)

    def on_round(record: object) -> None:
        _log.info("%s", json.dumps(record))
        if aborted():
            raise Aborted
        proposal.advance(transport, connected())  # sites may join late

    state = first_state(assembled)
    agreed = {
        "plan": canonical(plan), "facts": facts(assembled.run_plan), "within": None, "data_folder": "", "home": str(folder),
        "counts": {terms.name: terms.count for terms in assembled.run_plan.sites},
        "shape": Surveyed(assembled.shape, None).body(), "coordinator": credentials.identity.signing.public.hex(),
    }  # fmt: skip
    with (
        attester_of(policy) as attester,
        Journal.create(
            folder / JOURNAL,
            run=run,
            plan_json=json.dumps(agreed),
            digest=assembled.run_plan.digest,
            state=to_pieces(state),
        ) as journal,
    ):
        roster = sites.among({terms.name for terms in assembled.run_plan.sites})
        means = Means(transport, roster, credentials.identity.signing, policy, attester)
        return conduct(assembled, means, journal, state, folder, on_round)
