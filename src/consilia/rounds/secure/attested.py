"""Updates gathered inside attested code: sites seal them to its key, and only their sum goes on from here."""

import math
from collections.abc import Callable, Mapping, Sequence

from consilia.aggregate.admission import Gate
from consilia.aggregate.rule import WeightedMean
from consilia.core.canonical import Json, digest_bytes
from consilia.core.update import Bytes, ProtocolMessage, Release, Vector
from consilia.crypto.attestation.attester import Attester
from consilia.plan.run_plan import RunPlan
from consilia.plan.secure import SecureTerms
from consilia.rounds.exchange import Traffic, ask, exchange
from consilia.rounds.gather import Gathered, Scored, quorum, too_few
from consilia.rounds.pipelines import Pipeline
from consilia.rounds.ports import Transport
from consilia.rounds.records import summarise
from consilia.rounds.secure.attested_site import CHALLENGE, EVIDENCE, info_of, read_scores, read_update
from consilia.rounds.secure.shape import EVALUATION, UPDATE
from consilia.rounds.secure.signed import read
from consilia.secagg.roster import Roster


class AttestedSums:
    """Gathers updates and scores that were sealed to this machine's attested key.

    The code that runs this sees every update; its operator, as far as the hardware keeps it out, sees sums.

    Args:
        plan: The checked plan.
        secure: Its secure sum.
        run: Id of the run.
        pipelines: Each phase's pipeline.
        transport: Moves bytes to and from sites.
        run_context: What the run is, 32 bytes.
        roster: The sites' public keys. What the code that is measured takes as the roster decides whose answers count.
        attester: The hardware.
        max_age: Seconds after which sites want fresh evidence.
        now: Seconds since 1970.
    """

    def __init__(
        self, plan: RunPlan, secure: SecureTerms, *, run: str, pipelines: Sequence[Pipeline], transport: Transport,
        run_context: bytes, roster: Roster, attester: Attester, max_age: int, now: Callable[[], int],
    ) -> None:  # fmt: skip
        self._plan = plan
        self._secure = secure
        self._pipelines = pipelines
        self._transport = transport
        self._context = run_context
        self._roster = roster
        self._attester = attester
        self._max_age = max_age
        self._now = now
        self._shown: dict[str, int] = {}
        self._weights = {terms.name: terms.weight for terms in plan.sites}
        self._timeout = plan.plan.aggregation.deadline_seconds
        self._body: dict[str, Json] = {"plan": plan.digest, "run": run, "session": "attested"}

    def updates(self, number: int, asked: Sequence[str], payload: bytes, counted: Mapping[str, int]) -> Gathered:
        """Ask a round's cohort to train, open and admit each answer, and add them."""
        traffic = self._show(number)
        chain = self._pipelines[self._plan.phase(number).index].chain
        losses: dict[str, float] = {}

        def vector(upload: Bytes, site: str) -> Vector:
            losses[site], packed = read_update(self._open(upload, site, UPDATE, number))
            return chain.unpack(packed, site)

        def take(upload: Bytes, site: str) -> Bytes:
            vector(upload, site)
            return upload  # opened again when it is added: so many models would not fit, of many sites

        gate = Gate(number, self._plan.digest, digest_bytes(payload), frozenset(asked), take)
        traffic.add(ask(self._transport, gate, kind="train", body={**self._body, "purpose": UPDATE}, counted=counted,
                        payload=payload, timeout=self._timeout))  # fmt: skip
        names = sorted(gate.admitted)
        rule = WeightedMean()
        total = rule.zero(chain.sent)
        for site in names:
            rule.add(total, vector(gate.admitted[site], site), self._weights[site])
        fewest = max(self._secure.fewest, quorum(self._plan.plan.aggregation.quorum, len(asked)))
        reason = too_few(len(names), len(asked), fewest)
        known = [(self._weights[site], losses[site]) for site in names if math.isfinite(losses[site])]
        loss = sum(w * v for w, v in known) / sum(w for w, _ in known) if known else None
        return Gathered(names, dict(sorted(gate.dropped.items())), None if reason else total.total, total.weight,
                        gate.metrics, loss=loss, traffic=traffic, reason=reason)  # fmt: skip

    def scores(self, number: int, payload: bytes, counted: Mapping[str, int]) -> Scored:
        """Ask every site how a model does on its held-out rows, and add up what it opened."""
        traffic = self._show(number)
        gate = Gate(number, self._plan.digest, digest_bytes(payload), frozenset(self._weights),
                    lambda upload, site: read_scores(self._open(upload, site, EVALUATION, number)))  # fmt: skip
        traffic.add(ask(self._transport, gate, kind="evaluate", body={**self._body, "purpose": EVALUATION},
                        counted=counted, payload=payload, timeout=self._timeout))  # fmt: skip
        if too_few(len(gate.admitted), len(self._weights), max(1, len(self._weights) - self._secure.dropouts)):
            return Scored({}, None, traffic)  # the operator chose who got through: fewer are none of its business
        rows, found = 0.0, summarise(gate.admitted)
        for told in gate.admitted.values():
            n = told.get("n")
            rows += n if isinstance(n, int | float) and 0 < n < math.inf else 0.0
        if found.accuracy is None:
            return Scored({}, None, traffic)
        return Scored({}, (rows, rows * found.accuracy, None if found.loss is None else rows * found.loss), traffic)

    def stepped(self, model_digest: str) -> None:
        """Nothing is written down: sites have the evidence of what added their updates."""

    def _open(self, upload: Bytes, site: str, purpose: str, number: int) -> bytes:
        info = info_of(self._context, site, purpose, number)
        opened = self._attester.open_sealed(bytes(upload), info=info)
        # Anyone can seal to a public key: an operator could answer for all sites but one, and read that one off the sum.
        return read(self._roster, site, [info, self._attester.key], opened)

    def _show(self, number: int) -> Traffic:
        """Let each site verify what runs here: at first, and again before what it believes grows too old."""
        traffic, now = Traffic(), self._now()
        due = [
            site for site in self._weights if site not in self._shown or now - self._shown[site] >= self._max_age // 2
        ]
        if not due:
            return traffic
        nonces = self._asked(CHALLENGE, dict.fromkeys(due, b""), number, traffic)
        evidence = {
            site: self._attester.evidence(context=self._context, nonce=nonce).to_bytes()
            for site, nonce in sorted(nonces.items())
            if len(nonce) == 32
        }
        believed = self._asked(EVIDENCE, evidence, number, traffic)
        self._shown |= dict.fromkeys(believed, now)
        return traffic

    def _asked(self, stage: str, contents: Mapping[str, bytes], number: int, traffic: Traffic) -> dict[str, bytes]:
        answers: dict[str, bytes] = {}

        def accept(site: str, item: Release | ProtocolMessage) -> None:
            fits = isinstance(item, ProtocolMessage) and item.kind == "sum" and item.body.get("stage") == stage
            if fits and item.site == site and item.round == number:
                answers.setdefault(site, bytes(item.payload))

        tasks = {
            site: ProtocolMessage("sum", site, number, {**self._body, "stage": stage}, content)
            for site, content in contents.items()
        }
        traffic.add(exchange(self._transport, tasks, accept=accept, gone=lambda site, why: None, timeout=self._timeout))
        return {site: answer for site, answer in answers.items() if site in contents}
