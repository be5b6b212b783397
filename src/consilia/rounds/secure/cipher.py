"""Updates gathered under encryption: the coordinator adds what it cannot read, and sites open the sum."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from consilia.aggregate.admission import Gate
from consilia.core.canonical import Json, digest_bytes
from consilia.core.errors import ProtocolError
from consilia.core.update import Bytes, ProtocolMessage, Release
from consilia.plan.run_plan import RunPlan
from consilia.plan.secure import SecureTerms
from consilia.rounds.entropy import Entropy
from consilia.rounds.exchange import Traffic, ask, exchange
from consilia.rounds.gather import Gathered, Metrics, Scored, quorum, too_few
from consilia.rounds.lanes import read_scores
from consilia.rounds.ports import Transport
from consilia.rounds.secure.cipher_site import OPEN, context_of
from consilia.rounds.secure.schemes import Ask, CoordinatorScheme
from consilia.rounds.secure.shape import EVALUATION, UPDATE, Shape, shape_of, weight_and_loss


class CipherSums:
    """Gathers updates and scores under encryption.

    Args:
        plan: The checked plan.
        secure: Its secure sum.
        run: Id of the run.
        transport: Moves bytes to and from sites.
        run_context: What the keys are for.
        scheme: The encryption.
        entropy: Source of the keys' names.
    """

    def __init__(
        self, plan: RunPlan, secure: SecureTerms, *, run: str, transport: Transport, run_context: bytes,
        scheme: CoordinatorScheme, entropy: Entropy,
    ) -> None:  # fmt: skip
        self._plan = plan
        self._secure = secure
        self._transport = transport
        self._context = run_context
        self._scheme = scheme
        self._entropy = entropy
        self._names = tuple(sorted(terms.name for terms in plan.sites))
        self._timeout = plan.plan.aggregation.deadline_seconds
        self._body: dict[str, Json] = {"plan": plan.digest, "run": run}
        self._keyed = False

    def updates(self, number: int, asked: Sequence[str], payload: bytes, counted: Mapping[str, int]) -> Gathered:
        """Ask a round's cohort to train, and have the sum of its updates opened."""
        traffic, missing = self._keys()
        if missing:
            return Gathered([], {}, None, 0.0, {}, traffic=traffic, reason=missing)
        shape = shape_of(self._plan, self._secure, UPDATE, number, len(self._names))
        names, dropped, metrics, opened, reason = self._sum(UPDATE, number, asked, payload, counted, shape, traffic)
        if opened is None:
            return Gathered([], dropped, None, 0.0, metrics, traffic=traffic, reason=reason)
        total, numbers = shape.split(opened)
        heaviest = max(terms.weight for terms in self._plan.sites)
        weight, loss = weight_and_loss(self._plan, names, numbers)
        return Gathered(names, dropped, total, weight, metrics, loss=loss, traffic=traffic, factor=heaviest)

    def scores(self, number: int, payload: bytes, counted: Mapping[str, int]) -> Scored:
        """Ask every site how a model does on its held-out rows, and have the sums opened."""
        traffic, missing = self._keys()
        if missing:
            return Scored({}, None, traffic)
        shape = shape_of(self._plan, self._secure, EVALUATION, number, len(self._names))
        opened = self._sum(EVALUATION, number, self._names, payload, counted, shape, traffic)[3]
        return Scored({}, None if opened is None else read_scores(shape.split(opened)[1]), traffic)

    def stepped(self, model_digest: str) -> None:
        """Nothing is written down: no vector of a site has a digest that it could check."""

    def _keys(self) -> tuple[Traffic, str | None]:
        """Let the sites make their keys, once a process; or say why there are none: the next round tries again."""
        traffic = Traffic()
        if not self._keyed:
            name = self._entropy.stream("keys").token(16).hex()
            self._body = {**self._body, "session": name}
            try:
                self._scheme.ceremony(self._asker(0, {}, traffic))
            except ProtocolError as error:
                return traffic, str(error)
            self._keyed = True
        return traffic, None

    def _sum(
        self, purpose: str, number: int, asked: Sequence[str], payload: bytes, counted: Mapping[str, int], shape: Shape,
        traffic: Traffic,
    ) -> tuple[list[str], dict[str, str], Metrics, NDArray[np.int64] | None, str | None]:  # fmt: skip
        total: list[bytes] = []

        def take(upload: Bytes, site: str) -> None:
            # Added as it comes: a bad one leaves the sum as it was, and memory holds one sum and one vector.
            total[:] = [self._scheme.add([*total, upload], shape.dim)]

        gate = Gate(number, self._plan.digest, digest_bytes(payload), frozenset(asked), take)
        kind = "train" if purpose == UPDATE else "evaluate"
        traffic.add(ask(self._transport, gate, kind=kind, body={**self._body, "purpose": purpose}, counted=counted,
                        payload=payload, timeout=self._timeout))  # fmt: skip
        names, dropped = sorted(gate.admitted), dict(sorted(gate.dropped.items()))
        fewest = max(self._secure.fewest, quorum(self._plan.plan.aggregation.quorum, len(asked)))
        reason = too_few(len(names), len(asked), fewest)
        if reason:
            return names, dropped, gate.metrics, None, reason
        try:
            opened = self._scheme.open(
                total[0], context_of(self._context, purpose, number, gate.model_digest), shape.dim, names, sorted(asked),
                self._asker(number, {"purpose": purpose, "model": gate.model_digest}, traffic),
            )  # fmt: skip
        except ProtocolError as error:
            return names, dropped, gate.metrics, None, str(error)
        return names, dropped, gate.metrics, opened, None

    def _asker(self, number: int, beside: Mapping[str, Json], traffic: Traffic) -> Ask:
        def asking(stage: str, contents: Mapping[str, bytes]) -> dict[str, bytes]:
            answers: dict[str, bytes] = {}

            def accept(site: str, item: Release | ProtocolMessage) -> None:
                said = item.metrics if isinstance(item, Release) else item.body
                kind = (
                    isinstance(item, Release)
                    if stage == OPEN
                    else isinstance(item, ProtocolMessage) and item.kind == "sum"
                )
                if kind and item.site == site and item.round == number and said.get("stage") == stage:
                    answers.setdefault(site, bytes(item.payload))

            body = {**self._body, **beside, "stage": stage}
            tasks = {site: ProtocolMessage("sum", site, number, body, content) for site, content in contents.items()}
            traffic.add(
                exchange(self._transport, tasks, accept=accept, gone=lambda site, why: None, timeout=self._timeout)
            )
            return {site: answer for site, answer in answers.items() if site in contents}

        return asking
