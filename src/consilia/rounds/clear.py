"""Updates gathered in the clear: each answer is admitted by itself, then added."""

from collections.abc import Mapping, Sequence

from consilia.aggregate.admission import Gate
from consilia.aggregate.rule import WeightedMean
from consilia.core.canonical import Json, digest_bytes
from consilia.core.errors import ProtocolError
from consilia.core.update import Bytes, Vector
from consilia.pipeline.chain import Chain
from consilia.plan.run_plan import RunPlan
from consilia.rounds import claims
from consilia.rounds.asynchronous.cohort import Cohort
from consilia.rounds.asynchronous.staleness import staleness_weight
from consilia.rounds.exchange import Traffic, ask
from consilia.rounds.gather import Gathered, Metrics, Scored, quorum, too_few
from consilia.rounds.pipelines import Pipeline
from consilia.rounds.ports import Transport
from consilia.rounds.updates import Updates


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
        gate = self._gate(number, asked, payload)
        traffic = ask(
            self._transport,
            gate,
            kind="train",
            body=self._body,
            counted=counted,
            payload=payload,
            timeout=self._timeout,
        )
        return self._sum(gate, asked, traffic, {})

    def add(self, cohort: Cohort, payload: bytes, counted: Mapping[str, int]) -> Gathered:
        """Add the updates that wait at a cohort, each for what its age leaves of it; the model is named, and sent to nobody."""
        gate = self._gate(cohort.round, cohort.names, payload)
        traffic = ask(
            self._transport, gate, kind="add", body={**self._body, **cohort.body, "model": gate.model_digest}, counted=counted,
            payload=b"", timeout=self._timeout, beside=cohort.beside,
        )  # fmt: skip
        return self._sum(gate, cohort.names, traffic, cohort.staleness)

    def _gate(self, number: int, asked: Sequence[str], payload: bytes) -> Gate[Bytes]:
        chain = self._chain(number)

        def take(packed: Bytes, site: str) -> Bytes:
            chain.unpack(packed, site)
            return packed

        return Gate(number, self._plan.digest, digest_bytes(payload), frozenset(asked), take)

    def _chain(self, number: int) -> Chain:
        return self._pipelines[self._plan.phase(number).index].chain

    def _sum(self, gate: Gate[Bytes], asked: Sequence[str], traffic: Traffic, staleness: Mapping[str, int]) -> Gathered:
        chain = self._chain(gate.round)
        gathered = add_all(self._plan, Updates(chain, gate.admitted), staleness, gate.metrics, chain.sent)
        gathered.dropped, gathered.traffic = dict(sorted(gate.dropped.items())), traffic
        needed = quorum(self._plan.plan.aggregation.quorum, len(asked))
        gathered.reason = too_few(len(gathered.names), len(asked), needed)
        if gathered.reason is not None:
            gathered.total = None
        return gathered

    def scores(
        self, number: int, payload: bytes, counted: Mapping[str, int], of: Sequence[str] | None = None
    ) -> Scored:
        """Ask every site, or some, how a model does on its held-out rows."""
        asked = frozenset(self._weights if of is None else of)
        gate = Gate(number, self._plan.digest, digest_bytes(payload), asked, _nothing)
        traffic = ask(
            self._transport, gate, kind="evaluate", body=self._body, counted=counted, payload=payload,
            timeout=self._timeout,
        )  # fmt: skip
        return Scored(gate.metrics, None, traffic)

    def stepped(self, model_digest: str) -> None:
        """Nothing to write down: every site's answer was seen."""


def add_all(
    plan: RunPlan, updates: Mapping[str, Vector], staleness: Mapping[str, int], metrics: Metrics, sent: int
) -> Gathered:
    """Return the sum of updates that were admitted, in their order.

    Args:
        plan: The checked plan.
        updates: site -> its update, shape (sent,).
        staleness: site -> steps that the model has made since it began; 0 where absent.
        metrics: site -> what came along.
        sent: Length of an update.
    """
    weights = {terms.name: terms.weight for terms in plan.sites}
    rule = WeightedMean()
    total = rule.zero(sent)
    for site, update in updates.items():
        rule.add(total, update, weights[site], staleness_weight(staleness.get(site, 0)))
    loss = claims.mean([(weights[site], claims.number(metrics[site].get("loss"))) for site in updates])
    return Gathered([*updates], {}, total.total, total.weight, metrics, updates, loss)


def _nothing(payload: Bytes, who: str) -> None:
    if payload:
        raise ProtocolError.of(who, needs="a score without a vector", got=f"{len(payload)} bytes",
                               hint="Answer what was asked")  # fmt: skip
