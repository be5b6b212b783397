"""A site that seals its answers to code at the coordinator, which has shown what it is."""

import math
import struct
from collections.abc import Callable, Mapping, Sequence

from consilia.core.canonical import Json
from consilia.core.errors import ProtocolError
from consilia.core.randomness import SecretRng
from consilia.core.update import ProtocolMessage
from consilia.crypto.attestation.evidence import Claims, Evidence
from consilia.crypto.attestation.policy import Policy
from consilia.crypto.attestation.sealing import seal_to
from consilia.crypto.attestation.verify import verify
from consilia.pipeline.transform import Array
from consilia.plan.run_plan import SiteHalf
from consilia.rounds.entropy import Entropy
from consilia.rounds.pipelines import Pipeline
from consilia.rounds.secure.shape import EVALUATION, UPDATE
from consilia.rounds.secure.signed import sign
from consilia.secagg.framing import join
from consilia.secagg.roster import Identity

CHALLENGE, EVIDENCE = "challenge", "evidence"
_LOSS, _SCORES = struct.Struct("<d"), struct.Struct("<3d")  # of fixed length, which a seal does not hide
_TOLD = ("n", "accuracy", "loss")


def info_of(run_context: bytes, site: str, purpose: str, round_number: int) -> bytes:
    """Return what a sealed answer belongs to: opened for anything else it is refused."""
    return join([b"consilia attested 1", run_context, site.encode(), purpose.encode(), str(round_number).encode()])


def read_update(content: bytes) -> tuple[float, bytes]:
    """Return (training loss, packed vector) of an opened update; the loss is NaN where it stayed at the site.

    Raises:
        ProtocolError: If the content is too short to be one.
    """
    if len(content) < _LOSS.size:
        raise ProtocolError.of("an opened update", needs="a loss and a vector", got=f"{len(content)} bytes",
                               hint="Both ends must run compatible versions")  # fmt: skip
    return float(_LOSS.unpack_from(content)[0]), content[_LOSS.size :]


def read_scores(content: bytes) -> dict[str, object]:
    """Return a site's opened scores; those that it did not tell are left out.

    Raises:
        ProtocolError: If the content is none.
    """
    if len(content) != _SCORES.size:
        raise ProtocolError.of("opened scores", needs=f"{_SCORES.size} bytes", got=f"{len(content)}",
                               hint="Both ends must run compatible versions")  # fmt: skip
    return {key: value for key, value in zip(_TOLD, _SCORES.unpack(content), strict=True) if math.isfinite(value)}


class AttestedSite:
    """A site's half of sums inside attested code.

    Args:
        half: The site's half of the plan.
        identity: The site's keys: it signs what it seals, so that nobody else can answer in its name.
        run_context: What the run is, 32 bytes.
        policy: Which code the site accepts; the site's own, never the coordinator's.
        pipelines: Each phase's pipeline: it packs what is sealed.
        entropy: Source of secret randomness.
        now: Seconds since 1970.

    Guarantees:
        An answer leaves only sealed to a key that evidence for an accepted measurement vouches for, made for this run and
        after this site drew its nonce. What evidence of each kind proves, and what it does not, is in
        docs/howto/attested-aggregator.md; the attested code itself sees every update.
    """

    def __init__(
        self, half: SiteHalf, *, identity: Identity, run_context: bytes, policy: Policy, pipelines: Sequence[Pipeline],
        entropy: Entropy, now: Callable[[], int],
    ) -> None:  # fmt: skip
        self._half = half
        self._identity = identity
        self._name = identity.name
        self._context = run_context
        self._policy = policy
        self._pipelines = pipelines
        self._entropy = entropy
        self._now = now
        self._nonce: bytes | None = None
        self._claims: Claims | None = None

    def answer(self, task: ProtocolMessage) -> ProtocolMessage:
        """Draw a nonce, or verify the evidence that was made for it.

        Raises:
            ProtocolError: Naming the clause of the policy that the evidence does not fulfil.
        """
        stage = task.body.get("stage")
        body: dict[str, Json] = {"stage": str(stage)}
        if stage == CHALLENGE:
            self._nonce = self._entropy.stream("nonce", self._name, task.round).token(32)
            return ProtocolMessage("sum", self._name, task.round, body, self._nonce)
        if stage == EVIDENCE and self._nonce is not None:
            nonce, self._nonce = self._nonce, None  # one question, one answer
            evidence = Evidence.from_bytes(bytes(task.payload))
            self._claims = verify(evidence, self._policy, context=self._context, nonce=nonce, now=self._now())
            return ProtocolMessage("sum", self._name, task.round, body)
        raise ProtocolError.of(f"site {self._name}", needs=f"the steps {CHALLENGE} and {EVIDENCE}, in this order",
                               got=str(stage), hint="Ask for a nonce first")  # fmt: skip

    def ended(self) -> None:
        """Nothing of a single sum is kept from one step to the next."""

    def ready(self, purpose: str, task: ProtocolMessage, model_digest: str) -> None:
        """Check that there is a key to seal to, and that what vouches for it is fresh."""
        self._current()

    def update(self, task: ProtocolMessage, vector: Array, loss: float | None, rng: SecretRng) -> bytes:
        """Return the sealed update; where nothing is protected the training loss is in it."""
        told = loss if loss is not None and self._half.plan.privacy.unit == "none" else float("nan")
        chain = self._pipelines[self._half.phase(task.round).index].chain
        return self._sealed(UPDATE, task, _LOSS.pack(told) + chain.pack(vector, rng), rng)

    def scores(self, task: ProtocolMessage, metrics: Mapping[str, Json], rng: SecretRng) -> bytes:
        """Return the sealed scores."""
        told = (metrics.get(key) for key in _TOLD)
        content = _SCORES.pack(*(value if isinstance(value, int | float) else math.nan for value in told))
        return self._sealed(EVALUATION, task, content, rng)

    def _sealed(self, purpose: str, task: ProtocolMessage, content: bytes, rng: SecretRng) -> bytes:
        info, claims = info_of(self._context, self._name, purpose, task.round), self._current()
        signed = sign(self._identity, [info, claims.key], content)
        return seal_to(claims, signed, info=info, rng=rng.derive("seal"), now=self._now())

    def _current(self) -> Claims:
        if self._claims is None:
            raise ProtocolError.of(f"site {self._name}", needs="verified evidence of the coordinator's code", got="none",
                                   hint="Let the coordinator show it first")  # fmt: skip
        self._claims.require_fresh(self._now())
        return self._claims
