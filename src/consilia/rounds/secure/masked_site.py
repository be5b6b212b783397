"""A site behind masks: it takes part in a session of secure aggregation for each sum that it is asked to be in."""

import base64
import binascii
from collections.abc import Mapping

import numpy as np

from consilia.core.canonical import Json, digest_bytes
from consilia.core.errors import ProtocolError
from consilia.core.randomness import SecretRng
from consilia.core.update import ProtocolMessage
from consilia.pipeline.transform import Array
from consilia.plan.run_plan import SiteHalf
from consilia.plan.secure import SecureTerms
from consilia.rounds.entropy import Entropy
from consilia.rounds.lanes import score_numbers, update_numbers
from consilia.rounds.secure.cohorts import Cohorts
from consilia.rounds.secure.kept import Sum
from consilia.rounds.secure.sessions import Party, session_of
from consilia.rounds.secure.shape import EVALUATION, UPDATE, shape_of
from consilia.rounds.secure.witness import Watch
from consilia.secagg import client
from consilia.secagg.client import Contribution
from consilia.secagg.messages import Begin, FromSite, Inbox, Masked, Survivors, to_site
from consilia.secagg.params import PURPOSES, Session
from consilia.secagg.transcript import Witness
from consilia.store.sessions import Sessions


class MaskedSite:
    """A site's half of sums under masks.

    Args:
        half: The site's half of the plan.
        secure: The plan's secure sum.
        run: Id of the run.
        party: The site's keys, and whom it believes.
        cohort: Who is in a sum.
        share: The site's weight over the largest of any site's.
        store: Where sums under way are kept.
        entropy: Source of secret randomness.
        alone: Whether the site has a process of its own, which may be killed while those of the others go on: then every step
            is on disk before its answer leaves, and a restarted process goes on in the session.

    Guarantees:
        Those of `secagg.client` for each session. Beyond one session: in each round at most one masked update ever leaves,
        also after a kill: that it may have left is on disk before it does, and another session of that round is refused
        then. What the site votes for is on disk before its vote leaves, so it never gives away shares of two kinds.
        A session that a kill took from memory before that is lost, unless the site is alone: nothing more is said in it.
        Of scores, one masked vector leaves for each round of the schedule, by each process of the site: a run that is
        resumed may ask again. Charged scores are sealed, and leave once (`rounds.site`).
    """

    def __init__(
        self, half: SiteHalf, secure: SecureTerms, *, run: str, party: Party, cohort: Cohorts,
        share: float, store: Sessions, entropy: Entropy, alone: bool = False,
    ) -> None:  # fmt: skip
        self._half = half
        self._secure = secure
        self._run = run
        self._party = party
        self._cohort = cohort
        self._share = share
        self._store = store
        self._entropy = entropy
        self._alone = alone
        self._sums: dict[str, Sum] = {}
        self._over = False
        self._watch = Watch(run, party, store, self._witness)
        self._name = party.identity.name
        self._who = f"site {self._name}"

    def answer(self, task: ProtocolMessage) -> ProtocolMessage:
        """Take a step of a session.

        Raises:
            ProtocolError: If the step is none, or belongs to no session that is under way.
        """
        purpose = self._text(task, "purpose")
        if purpose not in PURPOSES:
            raise self._refusal(" or ".join(PURPOSES), "another purpose")
        message = to_site(self._text(task, "stage"), task.payload, who=self._who)
        if isinstance(message, Begin):
            self._begin(purpose, task, message)
        (output,) = self._step(purpose, task, message)
        body: dict[str, Json] = {"stage": output.STAGE, "session": task.body["session"]}
        return ProtocolMessage("sum", self._name, task.round, body, output.to_bytes())

    def ended(self) -> None:
        """Drop the secrets of sums under way and begin no more: the store forgets them too, and a late step would write some."""
        self._sums.clear()
        self._over = True

    def ready(self, purpose: str, task: ProtocolMessage, model_digest: str) -> None:
        """Take the inbox that rides on a task to train or to score, before anything is charged for it.

        Raises:
            ProtocolError: If no session of this round and model has come so far, or its vector was lost to a kill.
        """
        try:
            raw = base64.b64decode(self._text(task, "inbox"), validate=True)
        except binascii.Error:
            raise self._refusal("an inbox in base64", "other characters") from None
        state = self._under_way(purpose, task).state
        if state.session.model_digest != model_digest:
            raise self._refusal("the model that its session is about", "another")
        if purpose == UPDATE and state.masked and self._noise_is_fresh(task.round):
            # Another vector never leaves in this session: to charge for it would cost the site a turn for nothing.
            raise ProtocolError.of(self._who, needs="the vector that it had put under masks", got="none: it was killed with it",
                                   hint="Its answer of this round is lost; the next round goes on")  # fmt: skip
        self._step(purpose, task, Inbox.from_bytes(raw, who=self._who))

    def _noise_is_fresh(self, round_number: int) -> bool:
        event = self._half.charge.round_events[self._half.phase(round_number).index]
        return event is not None and not self._entropy.reproducible

    def update(self, task: ProtocolMessage, vector: Array, loss: float | None, rng: SecretRng) -> bytes:
        """Return the update under masks."""
        rides = self._half.plan.privacy.unit == "none"
        return self._masked(UPDATE, task, vector, update_numbers(self._share, loss) if rides else [])

    def scores(self, task: ProtocolMessage, metrics: Mapping[str, Json], rng: SecretRng) -> bytes:
        """Return the scores under masks."""
        return self._masked(EVALUATION, task, np.empty(0, np.int64), score_numbers(metrics))

    def _masked(self, purpose: str, task: ProtocolMessage, vector: Array, numbers: list[int]) -> bytes:
        session = self._under_way(purpose, task).state.session
        shape = shape_of(self._half, self._secure, purpose, task.round, len(self._party.roster.members))
        words = session.ring.lift(shape.join(vector, numbers))
        (output,) = self._step(purpose, task, Contribution(words))
        return bytes(output.to_bytes())

    def _begin(self, purpose: str, task: ProtocolMessage, begin: Begin) -> None:
        if self._over:
            raise self._refusal("a run that goes on", "one that has ended")
        model = self._text(task, "model")
        self._watch.check(task.body.get("entries", []), model if purpose == UPDATE else None)
        newest = self._sums.get(purpose)
        if newest is not None and newest.state.session.round > task.round:
            raise self._refusal(f"a round from {newest.state.session.round} on", f"round {task.round}")
        found = self._found(purpose, task.round)
        if found is not None and found.state.session.session_id == begin.session_id:
            return
        if found is not None and found.state.masked:
            raise ProtocolError.of(
                self._who, needs=f"the session of round {task.round} in which it has answered", got="another one",
                hint="A site's answer is in one sum and no other: after a kill the round is lost, the next one goes on",
            )  # fmt: skip
        cohort = self._cohort(purpose, task.round, task.body.get("cohort"))
        if self._name not in cohort:
            raise self._refusal("a round of the schedule that asks it", f"round {task.round}")
        rng = self._entropy.stream("sum", purpose, self._name, task.round)
        session = self._session(purpose, task.round, model, begin.session_id, cohort)
        state = client.start(session, self._party.identity, consortium=self._party.consortium, rng=rng)
        self._sums[purpose] = Sum(state)

    def _step(self, purpose: str, task: ProtocolMessage, event: client.Event) -> tuple[FromSite, ...]:
        before = self._under_way(purpose, task)
        state, outputs = client.step(before.state, event)
        masked = next((digest_bytes(output.payload) for output in outputs if isinstance(output, Masked)), "")
        self._sums[purpose] = after = Sum(state, masked or before.upload)
        if purpose == UPDATE and isinstance(event, Contribution | Survivors) and after.upload:
            self._store.keep(self._run, purpose, task.round, after.to_bytes())
        elif self._alone:
            self._store.begun(self._run, purpose, task.round, after.to_bytes())
        if isinstance(event, Inbox | Contribution) and state.reason:
            # Nobody is answered by this step itself: the reason goes out with the task's refusal.
            raise self._refusal("a session that goes on", state.reason)
        return outputs

    def _under_way(self, purpose: str, task: ProtocolMessage) -> Sum:
        found = self._found(purpose, task.round)
        if found is None or found.state.session.session_id.hex() != task.body.get("session"):
            raise self._refusal(f"a session of round {task.round} that it has begun", "another or none")
        return found

    def _found(self, purpose: str, round_number: int) -> Sum | None:
        """Return where the round's sum stands; that of an update also if another process left it."""
        known = self._sums.get(purpose)
        if known is not None and known.state.session.round == round_number:
            return known
        raw = self._store.state(self._run, purpose, round_number) if purpose == UPDATE else None
        if raw is None and self._alone:
            raw = self._store.beginning(self._run, purpose, round_number)
        if raw is None:
            return None
        return Sum.from_bytes(
            raw,
            lambda model, sid, cohort: self._session(purpose, round_number, model, sid, cohort),
            self._party.identity,
        )

    def _witness(self, round_number: int) -> Witness | None:
        found = self._found(UPDATE, round_number)
        return found.witness if found is not None and found.upload else None

    def _session(
        self, purpose: str, round_number: int, model: str, session_id: bytes, cohort: tuple[str, ...]
    ) -> Session:
        return session_of(
            self._half, self._secure, run=self._run, purpose=purpose, round_number=round_number, model_digest=model,
            session_id=session_id, roster=self._party.roster, cohort=cohort,
        )  # fmt: skip

    def _text(self, task: ProtocolMessage, key: str) -> str:
        value = task.body.get(key)
        if not isinstance(value, str):
            raise self._refusal(f"a step with a {key}", "none")
        return value

    def _refusal(self, needs: str, got: str) -> ProtocolError:
        return ProtocolError.of(self._who, needs=needs, got=got,
                                hint="The coordinator is broken or hostile: tell the consortium")  # fmt: skip
