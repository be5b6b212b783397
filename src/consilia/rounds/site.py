"""One site: takes tasks as bytes, books before it computes, seals before it sends.

The order is the guarantee: reserve in the site's ledger, train, encode, store the sealed release together with its commit, and
only then hand the bytes over. A kill between any two steps leaves the ledger at or above what was released.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import safetensors.numpy

from consilia.core.canonical import Json, digest_bytes
from consilia.core.errors import ProtocolError
from consilia.core.update import Bytes, ProtocolMessage, Release, Update, Vector
from consilia.core.wire import decode, encode, unpack_vector
from consilia.pipeline.transform import SiteContext
from consilia.plan.run_plan import SiteHalf
from consilia.rounds.account import Account
from consilia.rounds.asynchronous.waiting import Waiting
from consilia.rounds.entropy import Entropy
from consilia.rounds.model_check import ModelCheck
from consilia.rounds.pending import Outcome, Pending
from consilia.rounds.pipelines import Pipeline, shared_seed
from consilia.rounds.ports import Learner, LocalState, Score, Trained
from consilia.rounds.resend import again
from consilia.rounds.scores import exact, noisy
from consilia.rounds.secure.ports import SiteSum
from consilia.rounds.tasks import counted, refusal, refused, require_agreed, text
from consilia.store.crash import crash_point
from consilia.store.ledger_store import Purpose, SiteStore

_PIPELINE = "pipeline."  # begins the names of what transforms keep


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
        share: The site's weight over the largest of any site's, for sums that are added plainly.
        sums: The site's half of a secure sum; None where its updates leave in the clear.
        own: Takes the site's own numbers, which a secure sum hides from the coordinator; they stay here.
        models: Looks at each model before anything is charged or computed for it; None: any finite one will do.
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
        share: float = 1.0,
        sums: SiteSum | None = None,
        own: Callable[[Mapping[str, Json]], None] | None = None,
        models: ModelCheck | None = None,
    ) -> None:
        self.name = half.terms.name
        self._half = half
        self._run = run
        self._learner = learner
        self._pipelines = pipelines
        self._dim = payload_dim
        self._store = store
        self._entropy = entropy
        self._digest = digest
        self._share = share
        self._sums = sums
        self._own = own
        self._models = models
        self._account = Account(half, run, store, fingerprint=fingerprint, reproducible=entropy.reproducible)
        waits = store is not None and half.plan.aggregation.mode == "two-phase"
        self._waiting = Waiting(half, run, store, self._account) if waits and store is not None else None

    def require_room(self) -> None:
        """See `Account.require_room`."""
        self._account.require_room()

    def open(self) -> None:
        """See `Account.open`."""
        self._account.open()

    def handle(self, frame: Bytes) -> bytes:
        """Answer one task. Never raises for what a message or the rows cause: of a fault only its class leaves the site."""
        begun = self.begin(frame)
        return self.finish(begun, begun.compute()) if isinstance(begun, Pending) else begun

    def begin(self, frame: Bytes) -> bytes | Pending:
        """Book what a task asks for, on disk. Bytes are the answer already; else what is left is to compute and to `finish`."""
        number = 0
        try:
            task = decode(frame, who=f"site {self.name}")
            if not isinstance(task, ProtocolMessage):
                raise self._refusal("a task", got="a release", hint="Send tasks to sites")
            number = task.round
            require_agreed(task, self._half, self._run)
            if task.kind == "train":
                return self._begin_training(task)
            if self._waiting is not None and task.kind == "prepare":
                said = self._waiting.ready(task)
                return encode(said) if said is not None else self._book(task, self._digest(task.payload))
            if self._waiting is not None and task.kind == "add":
                return self._add(task, self._waiting)
            if task.kind == "evaluate":
                return self._begin_evaluation(task)
            if task.kind == "sum":
                return encode(self._under_cover().answer(task))
            return self._close(task)
        except Exception as error:  # a bad row or a full disk costs this site its turn, not the round
            return refused(self.name, number, error)

    def finish(self, pending: Pending, outcome: Outcome) -> bytes:
        """Seal what was computed, commit it and return it: from then on, and not before, it may be sent."""
        try:
            if isinstance(outcome, Exception):
                raise outcome
            if isinstance(outcome, Trained) and self._models is not None:
                self._models.trained(outcome.vector)
            if isinstance(outcome, Trained) and self._waiting is not None:
                return encode(self._waiting.keep(pending, outcome))
            if isinstance(outcome, Trained):
                return self._finish_training(pending, outcome)
            return self._finish_evaluation(pending, outcome)
        except Exception as error:  # as above
            return refused(self.name, pending.task.round, error)

    def _under_cover(self) -> SiteSum:
        if self._sums is None:
            raise self._refusal("a plan with a secure sum", 'secure_sum.mode = "none"', "Ask what the plan says")
        return self._sums

    def _refusal(self, needs: str, got: str, hint: str) -> ProtocolError:
        return refusal(self.name, needs, got, hint)

    def _begin_training(self, task: ProtocolMessage) -> bytes | Pending:
        model_digest = self._digest(task.payload)
        sealed = self._sealed(task, "update", model_digest)
        if sealed is not None:
            return sealed
        self._account.forward(task.round, "update", model_digest)
        if self._sums is not None:
            self._sums.ready("update", task, model_digest)
        return self._book(task, model_digest)

    def _add(self, task: ProtocolMessage, waiting: Waiting) -> bytes:
        """Give the round the update that waits here."""
        model_digest = text(task, "model")
        sealed = self._sealed(task, "update", model_digest)
        if sealed is not None:
            return sealed
        self._account.forward(task.round, "update", model_digest)
        if self._sums is not None:
            self._sums.ready("update", task, model_digest)
        taken = waiting.take(task)
        secret = self._entropy.stream("add", self.name, task.round)
        pending = Pending(task, model_digest, taken.hold, self._learner, taken.trained.vector, self._local(task), secret,
                          taken.factor)  # fmt: skip
        return self._finish_training(pending, taken.trained)

    def _book(self, task: ProtocolMessage, model_digest: str) -> Pending:
        payload, local = self._payload(task, model_digest), self._local(task)
        phase = self._half.phase(task.round).index
        event = self._half.charge.round_events[phase]
        crash_point("site.before_reserve")
        hold = self._account.reserve(task.round, "update", event)
        crash_point("site.after_reserve")
        secret = self._entropy.stream("train", self.name, task.round)
        return Pending(task, model_digest, hold, self._learner, payload, local, secret)

    def _finish_training(self, pending: Pending, trained: Trained) -> bytes:
        task, hold = pending.task, pending.hold
        phase = self._half.phase(task.round).index
        update = Update(trained.vector, self._half.terms.weight)
        metrics: dict[str, Json] = {}
        if self._sums is not None:
            metrics["session"] = task.body.get("session")
        elif self._half.charge.round_events[phase] is None and trained.loss is not None:
            metrics["loss"] = trained.loss if np.isfinite(trained.loss) else None
        if hold is not None and self._store is not None:
            metrics["charges"] = self._account.charges[phase]
            metrics["ledger_head"] = hold.head
        if self._own is not None:
            norm = float(np.linalg.norm(trained.vector.astype(np.float64)))
            self._own({"run": self._run, "round": task.round, "update_norm": norm, "train_loss": trained.loss})
        context = self._context(pending)
        release = self._seal(update, context, pending, trained.loss, metrics)
        crash_point("site.before_commit")
        if self._store is not None:
            kept = {**trained.local_state, **{f"{_PIPELINE}{name}": value for name, value in context.state.items()}}
            state = safetensors.numpy.save(kept) if kept else None
            if hold is not None:
                self._store.commit(
                    hold, release=release, model_digest=pending.model_digest, local_state=state, counted=counted(task),
                    round=task.round,
                )  # fmt: skip
            elif state is not None or self._sums is not None or self._waiting is not None:
                self._store.seal_free(
                    self._run, task.round, release=release, model_digest=pending.model_digest, local_state=state,
                    counted=counted(task),
                )  # fmt: skip
        crash_point("site.after_commit")
        return release

    def _context(self, pending: Pending) -> SiteContext:
        local = pending.local or {}
        state = {name.removeprefix(_PIPELINE): value for name, value in local.items() if name.startswith(_PIPELINE)}
        shared = shared_seed(self._half.plan, pending.task.round)
        return SiteContext(pending.secret, shared, self._share * pending.factor, state)

    def _seal(
        self, update: Update, context: SiteContext, pending: Pending, loss: float | None, metrics: dict[str, Json]
    ) -> bytes:
        number = pending.task.round
        chain = self._pipelines[self._half.phase(number).index].chain
        vector = chain.encode(update.vector, context)
        payload = (
            self._sums.update(pending.task, vector, loss, pending.secret)
            if self._sums
            else chain.pack(vector, pending.secret)
        )
        return encode(Release(payload, self.name, number, self._half.digest, pending.model_digest, metrics))

    def _begin_evaluation(self, task: ProtocolMessage) -> bytes | Pending:
        mode = self._half.plan.evaluation.metrics
        if mode == "hidden":
            raise self._refusal("a plan that lets metrics leave", 'evaluation.metrics = "hidden"',
                                "Declare held-out rows public, or charge for their metrics")  # fmt: skip
        model_digest = self._digest(task.payload)
        event = self._half.charge.evaluation_event
        sealed = self._sealed(task, "evaluation", model_digest) if event is not None else None
        if sealed is not None:
            return sealed
        self._account.forward(task.round, "evaluation", model_digest)
        if self._sums is not None:
            self._sums.ready("evaluation", task, model_digest)
        payload, local = self._payload(task, model_digest), self._local(task)
        hold = self._account.reserve(task.round, "evaluation", event)
        secret = self._entropy.stream("evaluate", self.name, task.round)
        return Pending(task, model_digest, hold, self._learner, payload, local, secret)

    def _finish_evaluation(self, pending: Pending, score: Score) -> bytes:
        deviation = self._half.plan.evaluation.noise_multiplier or 0.0
        free = self._half.charge.evaluation_event is None
        metrics = exact(score) if free else noisy(score, deviation, pending.secret)
        number, digest, hold = pending.task.round, pending.model_digest, pending.hold
        payload = b""
        if self._own is not None:
            self._own({"run": self._run, "round": number, **exact(score)})
        if self._sums is not None:
            payload = self._sums.scores(pending.task, metrics, pending.secret)
            metrics = {"session": pending.task.body.get("session")}
        release = encode(Release(payload, self.name, number, self._half.digest, digest, metrics))
        if hold is not None and self._store is not None:
            self._store.commit(hold, release=release, model_digest=digest, local_state=None)
        return release

    def _sealed(self, task: ProtocolMessage, purpose: Purpose, model_digest: str) -> bytes | None:
        sealed = self._store.sealed(self._run, task.round, purpose) if self._store is not None else None
        return None if sealed is None else again(sealed, task, model_digest, who=f"site {self.name}")

    def _payload(self, task: ProtocolMessage, digest: str) -> Vector:
        vector = unpack_vector(task.payload, self._dim, who=f"site {self.name}")
        if not np.isfinite(vector).all():
            raise self._refusal("a finite model", got="NaN or infinite values", hint="Lower the rates")
        if self._models is not None:
            self._models.require(task, vector, digest)
        return vector

    def _local(self, task: ProtocolMessage) -> LocalState | None:
        newest = counted(task)
        if self._store is None or newest < 1:
            return None
        state = self._store.local_state(self._run, newest)
        return None if state is None else safetensors.numpy.load(state)

    def _close(self, task: ProtocolMessage) -> bytes:
        # The head goes to the coordinator as a witness: a ledger rolled back later no longer matches it.
        status = str(task.body.get("status", "done"))
        head = self._account.close(status)
        if self._sums is not None:
            self._sums.ended()
        if self._models is not None:
            self._models.close()
        return encode(ProtocolMessage("closed", self.name, task.round, {"ledger_head": head}))
