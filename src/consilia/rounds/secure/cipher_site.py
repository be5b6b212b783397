"""A site in encrypted sums: one vector a round and purpose, under a key that it helped to make."""

from collections.abc import Callable, Mapping
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from consilia.core.canonical import Json, canonical_bytes, digest_bytes
from consilia.core.errors import ProtocolError
from consilia.core.randomness import SecretRng
from consilia.core.update import ProtocolMessage, Release
from consilia.pipeline.transform import Array
from consilia.plan.run_plan import SiteHalf
from consilia.plan.secure import SecureTerms
from consilia.rounds.entropy import Entropy
from consilia.rounds.lanes import score_numbers, update_numbers
from consilia.rounds.secure.schemes import SiteScheme
from consilia.rounds.secure.shape import EVALUATION, UPDATE, shape_of
from consilia.secagg.params import PURPOSES

OPEN = "open"


def context_of(run_context: bytes, purpose: str, round_number: int, model_digest: str) -> bytes:
    """Return what the vectors of a round are for, 32 bytes: vectors of sites that were shown other models do not add up.

    A site takes the first model it is shown in a round, so the coordinator has no part in it that it could choose twice.
    """
    about: dict[str, Json] = {"purpose": purpose, "round": round_number, "model": model_digest}
    return sha256(run_context + canonical_bytes(about)).digest()


class CipherSite:
    """A site's half of sums under encryption.

    Args:
        half: The site's half of the plan.
        secure: The plan's secure sum.
        name: The site.
        sites: How many sites the plan has.
        run_context: What the keys are for.
        cohort: (purpose, round) -> who is asked, by the public schedule.
        share: The site's weight over the largest of any site's.
        scheme: The encryption.
        entropy: Source of secret randomness.

    Guarantees:
        For each round and purpose of the public schedule at most one vector leaves this process, whatever keys are made.
        Keys are in memory only: after a kill sites make new ones, and what was encrypted under the old ones can never be
        opened. An update that left before the kill is never encrypted again (`rounds.site`).
        The coordinator alone learns sums of enough vectors and nothing else. What it can learn together with sites: see the
        scheme.
    """

    def __init__(
        self, half: SiteHalf, secure: SecureTerms, *, name: str, sites: int, run_context: bytes,
        cohort: Callable[[str, int], tuple[str, ...]], share: float, scheme: SiteScheme, entropy: Entropy,
    ) -> None:  # fmt: skip
        self._half = half
        self._secure = secure
        self._name = name
        self._sites = sites
        self._context = run_context
        self._cohort = cohort
        self._share = share
        self._scheme = scheme
        self._entropy = entropy
        self._session = ""
        self._newest: dict[str, tuple[bytes, str, bytes]] = {}
        self._models: dict[str, tuple[int, str]] = {}  # of the newest round of a purpose

    def answer(self, task: ProtocolMessage) -> ProtocolMessage | Release:
        """Take a step of the ceremony, or help to open a sum.

        Raises:
            ProtocolError: If it is neither, or out of turn.
        """
        stage, session = self._text(task, "stage"), self._text(task, "session")
        rng = self._entropy.stream("cipher", stage, self._name, task.round)
        content = bytes(task.payload)
        if stage == OPEN:
            purpose = self._text(task, "purpose")
            self._agree(purpose, task)
            model = self._only(purpose, task.round, self._text(task, "model"))
            shape = shape_of(self._half, self._secure, purpose, task.round, self._sites)
            context = context_of(self._context, purpose, task.round, model)
            answer = self._scheme.open(content, context, shape.dim, self._cohort(purpose, task.round), rng)
            told: dict[str, Json] = {"stage": stage, "session": session}
            return Release(answer, self._name, task.round, self._half.digest, model, told)
        answer = self._scheme.step(stage, content, rng)
        self._session = session
        body: dict[str, Json] = {"stage": stage, "session": session}
        return ProtocolMessage("sum", self._name, task.round, body, answer)

    def ended(self) -> None:
        """Keys stay in memory as long as the process: a coordinator killed at the end asks for the last scores again."""

    def ready(self, purpose: str, task: ProtocolMessage, model_digest: str) -> None:
        """Check that the keys are those that the task speaks of, and that this site is asked by the public schedule."""
        self._agree(purpose, task)
        self._only(purpose, task.round, model_digest)
        self._scheme.require_key()

    def update(self, task: ProtocolMessage, vector: Array, loss: float | None, rng: SecretRng) -> bytes:
        """Return the encrypted update."""
        rides = self._half.plan.privacy.unit == "none"
        return self._encrypted(UPDATE, task, vector, update_numbers(self._share, loss) if rides else [], rng)

    def scores(self, task: ProtocolMessage, metrics: Mapping[str, Json], rng: SecretRng) -> bytes:
        """Return the encrypted scores."""
        return self._encrypted(EVALUATION, task, np.empty(0, np.int64), score_numbers(metrics), rng)

    def _encrypted(
        self, purpose: str, task: ProtocolMessage, vector: NDArray[np.int64], numbers: list[int], rng: SecretRng
    ) -> bytes:
        values = shape_of(self._half, self._secure, purpose, task.round, self._sites).join(vector, numbers)
        # Rounding and noise stay within the bound but for a chance below 2^-40; a value beyond it loses little at the edge.
        values = np.clip(values, -self._secure.value_bound, self._secure.value_bound)
        context = context_of(self._context, purpose, task.round, self._models[purpose][1])
        digest = digest_bytes(values.tobytes())
        known = self._newest.get(purpose)
        if known is None or known[0] != context:  # a later round: none goes back, and a round has one model
            known = context, digest, self._scheme.encrypt(context, values, rng.derive("cipher"))
            self._newest[purpose] = known
        if known[1] != digest:
            raise self._refusal(f"one vector for the {purpose} of round {task.round}", "another one")
        return known[2]

    def _agree(self, purpose: str, task: ProtocolMessage) -> None:
        if not self._session or self._text(task, "session") != self._session:
            raise self._refusal("the keys that were made last", "others, or none")
        if purpose not in PURPOSES or self._name not in self._cohort(purpose, task.round):
            raise self._refusal("a round of the schedule that asks it", f"{purpose} of round {task.round}")

    def _only(self, purpose: str, round_number: int, model_digest: str) -> str:
        """Return the one model of a round, the first that this site was shown; rounds never go back."""
        newest, model = self._models.get(purpose, (round_number, model_digest))
        if round_number < newest:
            raise self._refusal(f"a round from {newest} on", f"round {round_number}")
        if round_number == newest and model != model_digest:
            raise self._refusal(f"the model of round {round_number} that it was shown first", "another one")
        self._models[purpose] = round_number, model_digest
        return model_digest

    def _text(self, task: ProtocolMessage, key: str) -> str:
        value = task.body.get(key)
        if not isinstance(value, str):
            raise self._refusal(f"a step with a {key}", "none")
        return value

    def _refusal(self, needs: str, got: str) -> ProtocolError:
        return ProtocolError.of(f"site {self._name}", needs=needs, got=got,
                                hint="The coordinator is broken or hostile: tell the consortium")  # fmt: skip
