"""The coordinator: asks a cohort, adds what comes, steps the model, writes the round down, goes on."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from consilia.aggregate.optimizer import ServerOptimizer
from consilia.aggregate.rule import WeightedMean, WeightedSum
from consilia.core.canonical import digest_bytes
from consilia.core.errors import ProtocolError
from consilia.core.finite import all_finite
from consilia.core.update import Vector
from consilia.core.wire import pack_vector
from consilia.pipeline.transform import Array, SumContext
from consilia.plan.run_plan import RunPlan
from consilia.plan.schema import Plan
from consilia.rounds import geometry
from consilia.rounds.asynchronous.cohort import Cohort
from consilia.rounds.asynchronous.two_phase import TwoPhase
from consilia.rounds.booking import Booking
from consilia.rounds.clear import Clear
from consilia.rounds.closing import close
from consilia.rounds.entropy import Entropy
from consilia.rounds.exchange import Traffic
from consilia.rounds.gather import Gathered, Gatherer
from consilia.rounds.pipelines import Pipeline, shared_seed
from consilia.rounds.ports import Clock, Transport
from consilia.rounds.rates import coordinator_factor
from consilia.rounds.records import HIDDEN, RoundRecord
from consilia.rounds.selection import average, keep, result_model, void_if_worse
from consilia.rounds.spending import Spending
from consilia.rounds.state import TrainingState, to_pieces
from consilia.store.crash import crash_point
from consilia.store.journal import Journal

PATIENCE = 5  # rounds in a row that may fail to count before the run ends itself

OnRound = Callable[[dict[str, Any]], None]


class Coordinator:
    """Runs the rounds of one checked plan.

    Args:
        plan: The checked plan.
        run: Id of the run.
        state: Where to begin: round 0 of a new run, or the last round of the journal.
        pipelines: Each phase's pipeline and the public numbers it was built from.
        transport: Moves bytes to and from sites.
        journal: Where decided rounds are written down, durably.
        entropy: Source of secret randomness (noise at the server).
        clock: Monotonic seconds.
        gatherer: Asks sites and adds what comes, or what those have that are ready; in the clear when absent.
    """

    def __init__(
        self, plan: RunPlan, *, run: str, state: TrainingState, pipelines: Sequence[Pipeline], transport: Transport,
        journal: Journal, entropy: Entropy, clock: Clock, gatherer: Gatherer | TwoPhase | None = None,
    ) -> None:  # fmt: skip
        self._plan = plan
        self._config = plan.plan
        self._run = run
        self.state = state
        self._pipelines = pipelines
        self._gatherer = gatherer or Clear(plan, run=run, pipelines=pipelines, transport=transport)
        self._transport = transport
        self._journal = journal
        self._entropy = entropy
        self._clock = clock
        self._weights = {terms.name: terms.weight for terms in plan.sites}
        self._names = [terms.name for terms in plan.sites]
        self._idle = 0
        self._spending = Spending(plan)
        self._booking = Booking(plan)

    def train(self, on_round: OnRound | None = None) -> TrainingState:
        """Run the rounds that are left; each is durable before the next begins."""
        state = self.state
        while state.pending or (state.stopped is None and state.round < len(self._plan.schedule)):
            started = self._clock()
            pending = RoundRecord(**state.pending) if state.pending else None  # type: ignore[arg-type]
            record = self._resume(pending) if pending else self._round(state.round + 1)
            record.seconds = self._clock() - started
            state.seconds += record.seconds
            crash_point("coordinator.before_commit")
            self._journal.commit_round(
                record.round,
                state=to_pieces(state),
                record=record.to_json(),
                charges=self._booking.entries(state, record),
            )
            crash_point("coordinator.after_commit")
            if on_round is not None:
                on_round(record.to_json())
            self._give_up_if_idle(record)
        return state

    def _give_up_if_idle(self, record: RoundRecord) -> None:
        """Give up a run that only burns its schedule.

        Raises:
            ProtocolError: If the last rounds that asked anybody all failed to count.
        """
        if record.asked:
            self._idle = self._idle + 1 if record.status == "skipped" else 0
        if self._idle >= PATIENCE and record.round < len(self._plan.schedule):
            reasons = sorted(set(record.dropped.values())) or [record.reason or "unknown"]
            raise ProtocolError.of("the run", needs=f"a round that counts among {PATIENCE} in a row",
                                   got=f"none up to round {record.round} ({'; '.join(reasons[:3])})",
                                   hint="Mend the cause, then start a new run")  # fmt: skip

    def evaluate_result(self) -> tuple[Vector, RoundRecord]:
        """Return the model that the plan keeps, scored once more where the plan lets metrics leave."""
        state = self.state
        model = result_model(self._config.training.keep, state)
        record = RoundRecord(len(self._plan.schedule) + 1)
        self._evaluate(model, record)
        if self._config.evaluation.metrics == "hidden":
            record.per_site = dict.fromkeys(self._names, HIDDEN)
        return model, record

    def close(self, status: str) -> dict[str, str]:
        """Tell every site that the run ended; return the heads of the sites' ledgers, as each reported it."""
        return close(self._plan, self._run, status, self._transport)

    def _round(self, number: int) -> RoundRecord:
        state = self.state
        record = RoundRecord(number, asked=sorted(self._plan.schedule[number - 1]), epsilon_budget=self._plan.epsilon)
        gathered = self._gather(record)
        crash_point("coordinator.after_collect")
        self._count(gathered.traffic, record)
        record.answered, record.dropped = gathered.names, {**record.dropped, **gathered.dropped}
        if gathered.total is None:
            record.status, record.reason = "skipped", gathered.reason
            if gathered.over:
                state.stopped = f"too few sites may begin another update ({gathered.reason})"
        else:
            self._step(gathered, gathered.total, record)
        state.round = number
        state.skipped += record.status == "skipped"
        record.epsilon_spent = self._spending.epsilon(state.charges, state.evaluations)
        if record.status == "counted" and number % self._config.evaluation.every == 0:
            self._before_scoring(record)
            self._score(record)
        return self._settle(record)

    def _gather(self, record: RoundRecord) -> Gathered:
        """Return the sum of the round's updates; note in the record who was asked, where the schedule does not say."""
        state, payload = self.state, self._payload(self.state.model)
        if not isinstance(self._gatherer, TwoPhase):
            gathered = self._gatherer.updates(record.round, tuple(record.asked), payload, state.counted)
            begun = record.asked if gathered.asked is None else gathered.asked
            self._booking.book(state, gathered.metrics, begun, self._plan.phase(record.round).index)
            if gathered.staleness is not None:
                record.asked, record.staleness = sorted(gathered.staleness) or record.asked, gathered.staleness
            return gathered
        version = state.round - state.skipped
        found = self._gatherer.wait(record.round, payload, state.counted, version)
        record.dropped = found.dropped
        self._count(found.traffic, record)
        self._booking.book(state, found.metrics, found.asked, 0)
        if not found.chosen:
            record.asked = found.waited
            return Gathered([], {}, None, 0.0, {}, reason=found.reason, over=found.over)
        cohort = Cohort(record.round, version, {site: came.began for site, came in found.chosen.items()})
        record.asked, record.staleness = list(cohort.names), cohort.staleness
        self._before_sum(record)
        return self._gatherer.add(cohort, payload, state.counted)

    def _before_sum(self, record: RoundRecord) -> None:
        # After a kill in a sum others would be ready first. A round has one sum, or sites that were in the first would see it
        # contradicted: so that this one has begun is written down, and a coordinator that was killed in it goes on after it.
        lost = replace(record, status="skipped", reason="the coordinator was restarted in the middle of its sum")
        self.state.pending = lost.to_json()
        self._journal.stage(to_pieces(self.state))
        self.state.pending = None
        crash_point("coordinator.before_sum")

    def _resume(self, record: RoundRecord) -> RoundRecord:
        """Go on with a round that was written down before it was done."""
        state = self.state
        if record.status == "counted":  # killed while the sites scored the model: only the scores are missing
            return self._settle(self._score(record))
        state.round, state.pending = record.round, None
        state.skipped += 1
        record.epsilon_spent = self._spending.epsilon(state.charges, state.evaluations)
        return record

    def _settle(self, record: RoundRecord) -> RoundRecord:
        """Write down what became of a sum that was opened: the model that goes on from it is known only now."""
        state = self.state
        if record.status == "counted":
            average(state, self._config.training, record.round, len(self._plan.schedule))
        if record.aggregate_norm is not None:
            told = self._gatherer.stepped(digest_bytes(self._payload(state.model)))
            record.transcript = record.transcript or told
        return record

    def _before_scoring(self, record: RoundRecord) -> None:
        privacy = self._config.privacy
        if privacy.unit == "none" or privacy.noise != "server" or self._config.evaluation.metrics == "hidden":
            return
        # The sites are about to see the noised model. Noise drawn again for the same sum after a kill would be a second
        # release that nobody was charged for: so it is written down before it is shown.
        self.state.pending = record.to_json()
        self._journal.stage(to_pieces(self.state))
        crash_point("coordinator.after_stage")

    def _score(self, record: RoundRecord) -> RoundRecord:
        state = self.state
        self._evaluate(state.model, record)
        if not void_if_worse(state, record, self._config.evaluation.stop_loss):
            keep(state, record, self._config.training.patience)
        record.epsilon_spent = self._spending.epsilon(state.charges, state.evaluations)
        state.pending = None
        return record

    def _payload(self, model: Vector) -> bytes:
        control = self.state.control
        return pack_vector(model) if control is None else pack_vector(np.concatenate([model, control]))

    def _count(self, traffic: Traffic, record: RoundRecord) -> None:
        record.bytes_up += traffic.up
        record.bytes_down += traffic.down
        self.state.bytes_up += traffic.up
        self.state.bytes_down += traffic.down

    def _step(self, gathered: Gathered, total: Array, record: RoundRecord) -> None:
        state, names = self.state, gathered.names
        phase = self._plan.phase(record.round)
        pipeline = self._pipelines[phase.index]
        context = SumContext(self._entropy.stream("server", record.round), shared_seed(self._config, record.round))
        # From here on in place: a sum, its mean and the step from it are one vector of doubles, whatever the model's size.
        gathered.total = None
        summed = np.asarray(pipeline.chain.decode(total, context), np.float64)
        del total
        if gathered.factor != 1.0:
            summed *= gathered.factor
        rule = WeightedMean(self._denominator(record.asked))
        aggregate = rule.finish(WeightedSum(summed, gathered.weight), summed)
        record.aggregate_norm = float(np.linalg.norm(aggregate))
        dim = state.model.size
        optimizer = server_optimizer(
            phase.plan, coordinator_factor(phase.plan.training, record.round, len(self._plan.schedule)),
            pipeline.mean_variance(names, gathered.weight if rule.denominator is None else rule.denominator),
        )  # fmt: skip
        # What the moments of another phase point at may not move any more.
        moments = state.moments if phase.index == state.phase else optimizer.init(dim)
        moved, moments = optimizer.step(state.model, aggregate[:dim], moments)
        if not all_finite(moved):
            record.aggregate_norm = None
            record.status, record.reason = "skipped", "the step was not finite; the last good model stays"
            return
        state.model, state.moments, state.phase = moved, moments, phase.index
        state.counted.update(dict.fromkeys(names, record.round))
        if state.control is not None:
            share = len(names) / len(self._names)
            aggregate[dim:] *= share
            aggregate[dim:] += state.control
            state.control = aggregate[dim:].astype(np.float32)
        del summed, aggregate
        if gathered.updates and (self._config.privacy.unit == "none" or self._config.privacy.noise == "site"):
            # Each vector carries its own noise already (or nothing is protected): its norm costs nothing more.
            record.update_norms = geometry.norms(gathered.updates)
            record.cosine = geometry.cosines(gathered.updates, record.update_norms)
        record.train_loss = gathered.loss

    def _denominator(self, asked: list[str]) -> float | None:
        privacy = self._config.privacy
        if privacy.unit == "none" or (privacy.within_site and privacy.noise == "site"):
            return None  # nothing is scaled for the sum: dividing by what arrived is post-processing
        return sum(self._weights[site] for site in asked)

    def _evaluate(self, model: Vector, record: RoundRecord) -> None:
        if self._config.evaluation.metrics == "hidden":
            return
        scored = self._gatherer.scores(record.round, self._payload(model), self.state.counted)
        self._count(scored.traffic, record)
        self.state.evaluations += 1
        record.add_scores(scored.metrics, self._names)
        if scored.totals is not None:
            record.add_totals(*scored.totals)


def server_optimizer(plan: Plan, factor: float = 1.0, noise_variance: float = 0.0) -> ServerOptimizer:
    """Return what a phase's plan does with the averaged update.

    Args:
        plan: The plan, or a phase's.
        factor: What the schedule makes of its rate.
        noise_variance: Of each coordinate of the averaged update (dp-adam).
    """
    training = plan.training
    return ServerOptimizer(
        training.server_optimizer, training.server_learning_rate * factor, training.server_momentum,
        training.server_beta2, training.server_tau, noise_variance,
    )  # fmt: skip
