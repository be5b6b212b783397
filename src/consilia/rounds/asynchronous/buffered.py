"""Buffered rounds, in the clear: each update leaves its site when it is done, and a round adds the first that came."""

from collections.abc import Mapping, Sequence

from consilia.aggregate.admission import Gate
from consilia.core.update import ProtocolMessage, Release, Vector
from consilia.plan.run_plan import RunPlan
from consilia.rounds.asynchronous.aside import Aside
from consilia.rounds.asynchronous.background import Asked, Background, Came
from consilia.rounds.clear import Clear, add_all
from consilia.rounds.exchange import Traffic
from consilia.rounds.gather import Gathered, Scored
from consilia.rounds.pipelines import Pipeline
from consilia.rounds.ports import Transport


class Buffered:
    """Asks idle sites to train and adds the first updates that come, each for what its age leaves of it.

    Args:
        plan: The checked plan.
        run: Id of the run.
        pipelines: Each phase's pipeline.
        transport: Moves bytes to and from sites.

    Source:
        Nguyen et al. (2022), Federated learning with buffered asynchronous aggregation, algorithm 1: the step is
        (1/W) sum w s(tau) delta with W the whole weights, so old updates make it smaller.
    """

    def __init__(self, plan: RunPlan, *, run: str, pipelines: Sequence[Pipeline], transport: Transport) -> None:
        self._plan = plan
        self._chain = pipelines[0].chain
        self._background: Background[Vector] = Background(
            plan, run=run, transport=transport, kind="train", read=self._read
        )
        self._clear = Clear(plan, run=run, pipelines=pipelines, transport=Aside(transport, self._background.take))
        self._steps = 0  # since this process began: what was under way before is asked for again
        self._last: Sequence[str] = ()

    def updates(self, number: int, asked: Sequence[str], payload: bytes, counted: Mapping[str, int]) -> Gathered:
        """Set idle sites to work and add what came first; who is asked follows from who is idle."""
        found = self._background.wait(number, payload, counted, self._steps)
        updates = {site: came.value for site, came in sorted(found.chosen.items())}
        staleness = {site: self._steps - found.chosen[site].began for site in updates}
        told = {site: dict(came.metrics) for site, came in found.chosen.items()}
        self._last = tuple(updates)
        gathered = add_all(self._plan, updates, staleness, told, self._chain.sent)
        gathered.metrics |= found.metrics
        gathered.dropped, gathered.traffic, gathered.reason = found.dropped, found.traffic, found.reason
        gathered.asked, gathered.staleness, gathered.over = tuple(found.asked), staleness, found.over
        if found.reason is not None:
            gathered.total = None
        return gathered

    def scores(self, number: int, payload: bytes, counted: Mapping[str, int]) -> Scored:
        """Ask those whose updates were added how a model does on held-out rows; of the result, every site that can be asked."""
        asked = self._background.settle() if number > len(self._plan.schedule) else self._last
        return self._clear.scores(number, payload, counted, asked) if asked else Scored({}, None, Traffic())

    def stepped(self, model_digest: str) -> None:
        """Hear that the model has made a step; nothing to write down: every site's answer was seen."""
        self._steps += 1

    def _read(self, asked: Asked, site: str, item: Release | ProtocolMessage) -> Came[Vector] | str | None:
        gate = Gate(asked.round, self._plan.digest, asked.model_digest, frozenset({site}), self._chain.unpack)
        reason = gate.offer(site, item)
        return reason if reason is not None else Came(asked.version, gate.admitted[site], gate.metrics[site])
