"""Updates gathered in the clear: each answer is admitted by itself, then added."""

from collections.abc import Mapping, Sequence

from consilia.aggregate.admission import Gate
from consilia.aggregate.rule import WeightedMean
from consilia.core.canonical import Json, digest_bytes
from consilia.core.errors import ProtocolError
from consilia.core.update import Bytes
from consilia.plan.run_plan import RunPlan
from consilia.rounds import claims
from consilia.rounds.exchange import ask
from consilia.rounds.gather import Gathered, Metrics, Scored, quorum, too_few
from consilia.rounds.pipelines import Pipeline
from consilia.rounds.ports import Transport


class Clear:
    """Asks sites and sees each one's answer.

    Args:
        plan: The checked plan.
        run: Id of the run.
        pipelines: Each phase's pipeline.
        transport: Moves bytes to and from sites.
    """

    def __init__(self, plan: RunPlan, *, run: str, pipelines: Sequence[Pipeline], transport: Transport) -> None:
        self._plan = plan
        self._body: dict[str, Json] = {"plan": plan.digest, "run": run}
        self._pipelines = pipelines
        self._transport = transport
        self._weights = {terms.name: terms.weight for terms in plan.sites}
        self._timeout = plan.plan.aggregation.deadline_seconds

    def updates(self, number: int, asked: Sequence[str], payload: bytes, counted: Mapping[str, int]) -> Gathered:
        """Ask a round's cohort to train, and add its updates in order of name: who answered first changes nothing."""
        chain = self._pipelines[self._plan.phase(number).index].chain
        gate = Gate(number, self._plan.digest, digest_bytes(payload), frozenset(asked), chain.unpack)
        traffic = ask(
            self._transport,
            gate,
            kind="train",
            body=self._body,
            counted=counted,
            payload=payload,
            timeout=self._timeout,
        )
        names = sorted(gate.admitted)
        rule = WeightedMean()
        total = rule.zero(chain.sent)
        for site in names:
            rule.add(total, gate.admitted[site], self._weights[site])
        reason = too_few(len(names), len(asked), quorum(self._plan.plan.aggregation.quorum, len(asked)))
        return Gathered(
            names, dict(sorted(gate.dropped.items())), None if reason else total.total, total.weight, gate.metrics,
            gate.admitted, _mean_loss(gate.metrics, names, self._weights), traffic, reason,
        )  # fmt: skip

    def scores(self, number: int, payload: bytes, counted: Mapping[str, int]) -> Scored:
        """Ask every site how a model does on its held-out rows."""
        gate = Gate(number, self._plan.digest, digest_bytes(payload), frozenset(self._weights), _nothing)
        traffic = ask(
            self._transport, gate, kind="evaluate", body=self._body, counted=counted, payload=payload,
            timeout=self._timeout,
        )  # fmt: skip
        return Scored(gate.metrics, None, traffic)

    def stepped(self, model_digest: str) -> None:
        """Nothing to write down: every site's answer was seen."""


def _nothing(payload: Bytes, who: str) -> None:
    if payload:
        raise ProtocolError.of(who, needs="a score without a vector", got=f"{len(payload)} bytes",
                               hint="Answer what was asked")  # fmt: skip


def _mean_loss(metrics: Metrics, names: Sequence[str], weights: Mapping[str, float]) -> float | None:
    return claims.mean([(weights[site], claims.number(metrics[site].get("loss"))) for site in names])
