"""What operators may ask of a coordinator, and what it tells of itself."""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from consilia.core.canonical import Json
from consilia.core.errors import PlanError, Problem
from consilia.core.version import VERSION
from consilia.federation.coordinator_service import CoordinatorService
from consilia.federation.offer import RUN
from consilia.plan.load import canonical, from_json
from consilia.plan.rules import broken
from consilia.plan.schema import Plan
from consilia.plan.travelling import travelling
from consilia.store.runs import QueuedRun
from consilia.transport.credentials.book import Book, Entry
from consilia.transport.link.hub import Seen


class Control:
    """Answers operators, and the status page.

    Args:
        service: Works through the runs.
        sites: What the hub sees.
        book: The roster as it is now.
    """

    def __init__(
        self, service: CoordinatorService, sites: Callable[[], dict[str, Seen]], book: Callable[[], Book]
    ) -> None:
        self._service = service
        self._sites = sites
        self._book = book
        self._began = time.monotonic()
        self._outcomes: dict[str, dict[str, Any]] = {}

    def answer(self, operator: Entry, request: Mapping[str, Json]) -> dict[str, Json]:
        """Do what an operator asks.

        Raises:
            PlanError: If it is nothing that can be done.
            StoreError: If the store cannot be read or written.
        """
        match request.get("do"):
            case "submit":
                return self._submit(operator, request)
            case "status":
                return self.status()
            case "stop":
                return self._stop(operator, _text(request, "run"))
            case other:
                raise PlanError.of("the coordinator", needs="submit, status or stop", got=f"{other!r}"[:64],
                                   hint="Install the same version of consilia at both ends")  # fmt: skip

    def status(self) -> dict[str, Json]:
        """Return all that may be told: who is there, and where every run stands."""
        return {
            "consortium": self._book().consortium, "version": VERSION, "uptime": round(time.monotonic() - self._began, 1),
            "roster": self._book().version, "sites": self._each_site(),
            "runs": [self._run(run) for run in self._service.queue.all()],
        }  # fmt: skip

    def _submit(self, operator: Entry, request: Mapping[str, Json]) -> dict[str, Json]:
        run = _text(request, "run")
        plan = travelling(from_json(request.get("plan")))
        problems = [*broken(plan), *self._strangers(plan)]
        if problems:
            raise PlanError(problems)
        self._service.queue.submit(run, json.dumps(canonical(plan)), by=operator.name)
        self._service.wake()
        return {"run": run}

    def _strangers(self, plan: Plan) -> list[Problem]:
        known = sorted(self._book().sites.by_name)
        return [
            Problem("plan key sites.only", "sites on the roster", repr(name), f"On it are: {', '.join(known)}")
            for name in plan.sites.only or []
            if name not in known
        ]

    def _stop(self, operator: Entry, run: str) -> dict[str, Json]:
        self._service.stop(run, by=operator.name)
        return {"run": run}

    def _each_site(self) -> list[Json]:
        seen = self._sites()
        found: list[Json] = []
        now = time.time()
        for entry in self._book().members:
            if entry.role != "site":
                continue
            one = seen.get(entry.name)
            found.append({
                "name": entry.name, "connected": one is not None and one.connected,
                "seconds": None if one is None else round(one.since, 1), "counts": None if one is None else dict(one.counts),
                "certificate_days": int((entry.until.timestamp() - now) // 86400),
            })  # fmt: skip
        return found

    def _run(self, run: QueuedRun) -> dict[str, Json]:
        told: dict[str, Any] = {
            "run": run.run, "status": run.status, "reason": run.reason, "round": run.round, "rounds": None,
            "submitted": run.submitted, "by": run.by, "sites": None, "accuracy": None, "epsilon": None, "last": None,
            "digest": None,
        }  # fmt: skip
        if run.status not in ("queued", "running"):
            return told | self._outcome(run.run)
        progress = self._service.progress.get(run.run)
        if progress is None:
            return told
        enrolment, assembled = progress.proposal.enrolment, progress.proposal.assembled
        told["sites"] = [
            {"name": name, "answer": enrolment.answers.get(name, "unasked"), "why": enrolment.reasons.get(name)}
            for name in enrolment.names
        ]
        if assembled is not None:
            plan = assembled.run_plan
            told |= {"rounds": len(plan.schedule), "digest": plan.digest, "epsilon": plan.epsilon}
        if progress.last is not None:
            told["last"] = {
                key: progress.last.get(key) for key in ("round", "status", "reason", "answered", "dropped", "seconds")
            }
            told["accuracy"] = progress.accuracy
        return told

    def _outcome(self, run: str) -> dict[str, Any]:
        """Return what a run that has ended came to; read once."""
        if run not in self._outcomes:
            result = self._service.result(run)
            if result is None:  # none yet, or it never began
                return {}
            self._outcomes[run] = {
                "rounds": result.get("rounds"), "digest": result.get("plan_digest"), "epsilon": result.get("epsilon"),
                "accuracy": result.get("accuracy"),
            }  # fmt: skip
        return self._outcomes[run]


def _text(request: Mapping[str, Json], key: str) -> str:
    value = request.get(key)
    if not isinstance(value, str) or not RUN.fullmatch(value):
        raise PlanError.of(f"request key {key}", needs="the id of a run", got=f"{value!r}"[:80],
                           hint="consilia status lists the runs")  # fmt: skip
    return value
