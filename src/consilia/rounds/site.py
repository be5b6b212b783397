"""One site: takes tasks as bytes, books before it computes, seals before it sends.

The order is the guarantee: reserve in the site's ledger, train, encode, store the sealed release together with its commit, and
only then hand the bytes over. A kill between any two steps leaves the ledger at or above what was released.
"""

import logging
import math
from collections.abc import Callable, Sequence

import numpy as np
import safetensors.numpy

from consilia.core.canonical import Json, digest_bytes
from consilia.core.errors import ConsiliaError, ProtocolError
from consilia.core.update import Bytes, ProtocolMessage, Release, Update, Vector
from consilia.core.wire import decode, encode, unpack_vector
from consilia.dp.ledger import Allotment
from consilia.pipeline.transform import SiteContext
from consilia.plan.run_plan import SiteHalf
from consilia.rounds.entropy import Entropy
from consilia.rounds.pending import Outcome, Pending
from consilia.rounds.pipelines import Pipeline, shared_seed
from consilia.rounds.ports import Learner, LocalState, Score, Trained
from consilia.rounds.scores import exact, noisy
from consilia.store.crash import crash_point
from consilia.store.ledger_store import Purpose, SiteStore

_log = logging.getLogger("consilia.site")


class Site:
    """A site in one run.

    Args:
        half: The site's half of the checked plan.
        run: Id of the run.
        learner: The site's rows and installed code.
        pipelines: Each phase's pipeline, built from the plan's public numbers.
        payload_dim: Length of the vector the coordinator sends (the model, and the control variate with SCAFFOLD).
        store: The site's ledger and sealed releases; None where nothing is charged and no state is kept.
        entropy: Source of secret randomness.
        fingerprint: Digest of the site's rows; recorded in its ledger, never sent.
        digest: SHA-256 in hex; simulated sites share one that knows the model again.
    """

    def __init__(
        self,
        half: SiteHalf,
        *,
        run: str,
        learner: Learner,
        pipelines: Sequence[Pipeline],
        payload_dim: int,
        store: SiteStore | None,
        entropy: Entropy,
        fingerprint: str,
        digest: Callable[[Bytes], str] = digest_bytes,
    ) -> None:
        self.name = half.terms.name
        self._half = half
        self._run = run
        self._learner = learner
        self._pipelines = pipelines
        self._dim = payload_dim
        self._store = store
        self._entropy = entropy
        self._fingerprint = fingerprint
        self._digest = digest
        self._charges = [0] * len(half.phases)

    def require_room(self) -> None:
        """Check that the site's ledger would admit the run, and write nothing.

        Raises:
            BudgetExceeded: If the population's budget does not cover the run's whole schedule.
        """
        allotment = self._allotment()
        if self._store is not None and allotment is not None:
            self._store.require_room(allotment, limit=self._half.plan.ledger.max_epsilon)

    def open(self) -> None:
        """Admit the run to the site's ledger before anything starts.

        Raises:
            BudgetExceeded: If the population's budget does not cover the run's whole schedule.
        """
        allotment = self._allotment()
        if self._store is not None and allotment is not None:
            self._store.allot(allotment, fingerprint=self._fingerprint, limit=self._half.plan.ledger.max_epsilon)
            self._charges = self._booked({event.digest: count for event, count in self._store.charged(self._run)})

    def _booked(self, charged: dict[str, int]) -> list[int]:
        """Return what the ledger holds of each phase; phases of one mechanism fill up in their order."""
        found = []
        for phase, event in zip(self._half.terms.phases, self._half.charge.round_events, strict=True):
            name = event.digest if event is not None else ""
            count = min(phase.participations, charged.get(name, 0))
            charged[name] = charged.get(name, 0) - count
            found.append(count)
        return found

    def _allotment(self) -> Allotment | None:
        charge, plan = self._half.charge, self._half.plan
        if not charge.booked:
            return None
        # Noise that anyone can recompute bounds nothing: what such a run releases counts as unbounded.
        bound = None if plan.run.reproducible else charge.epsilon[self._half.against]
        return Allotment(
            self._run, self._half.population, self._half.events, math.inf if bound is None else bound,
            plan.privacy.delta or 0.0, self._half.adjacency, self._half.against, within=self._half.within,
        )  # fmt: skip

    def handle(self, frame: bytes) -> bytes:
        """Answer one task. Never raises for what a message or the rows cause: of a fault only its class leaves the site."""
        begun = self.begin(frame)
        return self.finish(begun, begun.compute()) if isinstance(begun, Pending) else begun

    def begin(self, frame: bytes) -> bytes | Pending:
        """Book what a task asks for, on disk. Bytes are the answer already; else what is left is to compute and to `finish`."""
        number = 0
        try:
            task = decode(frame, who=f"site {self.name}")
            if not isinstance(task, ProtocolMessage):
                raise self._refusal("a task", got="a release", hint="Send tasks to sites")
            number = task.round
            self._agree(task)
            if task.kind == "train":
                return self._begin_training(task)
            if task.kind == "evaluate":
                return self._begin_evaluation(task)
            return self._close(task)
        except Exception as error:  # a bad row or a full disk costs this site its turn, not the round
            return self._fault(number, error)

    def finish(self, pending: Pending, outcome: Outcome) -> bytes:
        """Seal what was computed, commit it and return it: from then on, and not before, it may be sent."""
        try:
            if isinstance(outcome, Exception):
                raise outcome
            if isinstance(outcome, Trained):
                return self._finish_training(pending, outcome)
            return self._finish_evaluation(pending, outcome)
        except Exception as error:  # as above
            return self._fault(pending.task.round, error)

    def _fault(self, number: int, error: Exception) -> bytes:
        if isinstance(error, ConsiliaError):
            _log.warning("site %s refused round %d: %s", self.name, number, error)
            return self._answer("refused", number, error)
        _log.error("site %s failed in round %d", self.name, number, exc_info=error)
        return self._answer("failed", number, error)

    def _answer(self, kind: str, number: int, error: Exception) -> bytes:
        return encode(ProtocolMessage(kind, self.name, number, {"error": type(error).__name__}))

    def _agree(self, task: ProtocolMessage) -> None:
        for key, mine in (("plan", self._half.digest), ("run", self._run)):
            if task.body.get(key) != mine:
                raise self._refusal(
                    f"a task of {key} {mine[:12]}",
                    got=str(task.body.get(key))[:12],
                    hint="Both ends must have checked the same plan",
                )
        if task.site != self.name or task.kind not in ("train", "evaluate", "close"):
            raise self._refusal(
                "a train, evaluate or close task of its own",
                got=f"{task.kind} for {task.site}",
                hint="Ask each site by its name",
            )

    def _refusal(self, needs: str, got: str, hint: str) -> ProtocolError:
        return ProtocolError.of(f"site {self.name}", needs=needs, got=got, hint=hint)

    def _begin_training(self, task: ProtocolMessage) -> bytes | Pending:
        model_digest = self._digest(task.payload)
        sealed = self._sealed(task.round, "update", model_digest)
        if sealed is not None:
            return sealed
        payload = self._payload(task)
        local = self._local(task)
        phase = self._half.phase(task.round).index
        event = self._half.charge.round_events[phase]
        hold = None
        crash_point("site.before_reserve")
        if self._store is not None and event is not None:
            hold = self._store.reserve(self._run, task.round, "update", event, reuse_open=self._entropy.reproducible)
            self._charges[phase] += not hold.reused
        crash_point("site.after_reserve")
        secret = self._entropy.stream("train", self.name, task.round)
        return Pending(task, model_digest, hold, self._learner, payload, local, secret)

    def _finish_training(self, pending: Pending, trained: Trained) -> bytes:
        task, hold = pending.task, pending.hold
        phase = self._half.phase(task.round).index
        update = Update(trained.vector, self._half.terms.weight)
        metrics: dict[str, Json] = {}
        if self._half.charge.round_events[phase] is None and trained.loss is not None:
            metrics["loss"] = trained.loss if np.isfinite(trained.loss) else None
        if hold is not None and self._store is not None:
            metrics["charges"] = self._charges[phase]
            metrics["ledger_head"] = hold.head
        release = self._seal(update, pending, metrics)
        crash_point("site.before_commit")
        if self._store is not None:
            state = safetensors.numpy.save(dict(trained.local_state)) if trained.local_state else None
            if hold is not None:
                self._store.commit(
                    hold, release=release, model_digest=pending.model_digest, local_state=state, counted=_counted(task)
                )
            elif state is not None:
                self._store.seal_free(
                    self._run, task.round, release=release, model_digest=pending.model_digest, local_state=state,
                    counted=_counted(task),
                )  # fmt: skip
        crash_point("site.after_commit")
        return release

    def _seal(self, update: Update, pending: Pending, metrics: dict[str, Json]) -> bytes:
        number = pending.task.round
        context = SiteContext(pending.secret, shared_seed(self._half.plan, number))
        chain = self._pipelines[self._half.phase(number).index].chain
        payload = chain.pack(chain.encode(update.vector, context))
        return encode(Release(payload, self.name, number, self._half.digest, pending.model_digest, metrics))

    def _begin_evaluation(self, task: ProtocolMessage) -> bytes | Pending:
        mode = self._half.plan.evaluation.metrics
        if mode == "hidden":
            raise self._refusal(
                "a plan that lets metrics leave",
                got='evaluation.metrics = "hidden"',
                hint="Declare held-out rows public, or charge for their metrics",
            )
        model_digest = self._digest(task.payload)
        event = self._half.charge.evaluation_event
        sealed = self._sealed(task.round, "evaluation", model_digest) if event is not None else None
        if sealed is not None:
            return sealed
        payload, local = self._payload(task), self._local(task)
        hold = None
        if event is not None and self._store is not None:
            hold = self._store.reserve(
                self._run, task.round, "evaluation", event, reuse_open=self._entropy.reproducible
            )
        secret = self._entropy.stream("evaluate", self.name, task.round)
        return Pending(task, model_digest, hold, self._learner, payload, local, secret)

    def _finish_evaluation(self, pending: Pending, score: Score) -> bytes:
        deviation = self._half.plan.evaluation.noise_multiplier or 0.0
        free = self._half.charge.evaluation_event is None
        metrics = exact(score) if free else noisy(score, deviation, pending.secret)
        number, digest, hold = pending.task.round, pending.model_digest, pending.hold
        release = encode(Release(b"", self.name, number, self._half.digest, digest, metrics))
        if hold is not None and self._store is not None:
            self._store.commit(hold, release=release, model_digest=digest, local_state=None)
        return release

    def _sealed(self, number: int, purpose: Purpose, model_digest: str) -> bytes | None:
        sealed = self._store.sealed(self._run, number, purpose) if self._store is not None else None
        if sealed is None:
            return None
        if sealed.model_digest != model_digest:
            raise self._refusal(
                f"the model it answered in round {number}",
                got="another model",
                hint="A round has one model; start a new run for another",
            )
        return sealed.release

    def _payload(self, task: ProtocolMessage) -> Vector:
        vector = unpack_vector(task.payload, self._dim, who=f"site {self.name}")
        if not np.isfinite(vector).all():
            raise self._refusal("a finite model", got="NaN or infinite values", hint="Lower the rates")
        return vector

    def _local(self, task: ProtocolMessage) -> LocalState | None:
        counted = _counted(task)
        if self._store is None or counted < 1:
            return None
        state = self._store.local_state(self._run, counted)
        return None if state is None else safetensors.numpy.load(state)

    def _close(self, task: ProtocolMessage) -> bytes:
        # The head goes to the coordinator as a witness: a ledger rolled back later no longer matches it.
        status = str(task.body.get("status", "done"))
        charged = self._store is not None and self._half.charge.booked
        head = self._store.close_run(self._run, status) if self._store is not None and charged else None
        return encode(ProtocolMessage("closed", self.name, task.round, {"ledger_head": head}))


def _counted(task: ProtocolMessage) -> int:
    counted = task.body.get("counted")
    return counted if isinstance(counted, int) and not isinstance(counted, bool) and counted > 0 else 0
