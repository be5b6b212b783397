"""A site looks at each model before it charges or computes anything for it: a trapped one costs the site its turn, no record.

What is checked follows from the plan and from what this site saw before; the coordinator's word counts for nothing.
"""

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from consilia.core.errors import ProtocolError
from consilia.core.update import ProtocolMessage, Vector
from consilia.core.wire import pack_vector
from consilia.rounds.looks import Look, Looks, length
from consilia.rounds.server_step import Step
from consilia.store.sessions import Sessions

TRIPWIRE = 10.0  # times this site's own largest update that a step may be as long where the plan bounds none
_SAME = 1e-5  # of its length: what another processor may change of the weights that one seed gives
_ID = 16
_OWN = struct.Struct("<d")


class Kept(Protocol):
    """Where a site keeps the last model that it accepted."""

    def newest(self) -> tuple[int, bytes] | None:
        """Return the newest entry, (number, bytes), or None."""
        ...

    def keep(self, number: int, state: bytes) -> None:
        """Store an entry in place of an older one; its first 16 bytes say which model it is."""
        ...

    def forget(self) -> None:
        """Drop the model: the run has ended."""
        ...


class KeptInStore:
    """The site's own file."""

    def __init__(self, sessions: Sessions, run: str) -> None:
        self._sessions, self._run = sessions, run

    def newest(self) -> tuple[int, bytes] | None:
        """Return the newest entry."""
        return self._sessions.newest(self._run, "model")

    def keep(self, number: int, state: bytes) -> None:
        """Store an entry; another model of the same number leaves the first one standing."""
        self._sessions.advance(self._run, "model", number, state)

    def forget(self) -> None:
        """Drop the model."""
        self._sessions.forget(self._run)


@dataclass(frozen=True)
class Expected:
    """What an honest coordinator can send, by the plan's public numbers.

    Attributes:
        steps: Each phase's step.
        phase_of: Round -> index of its phase.
        rounds: Of the run.
        work: How many times this site's local steps another site may take.
        back: How many rounds the coordinator may take back: a stop-loss returns to the last model that was good.
    """

    steps: Sequence[Step]
    phase_of: Callable[[int], int]
    rounds: int
    work: float
    back: int = 0


class ModelCheck:
    """Accepts models, one after the other.

    Args:
        who: The site, for errors.
        looks: The first model, as installed code builds it, and those that this process has looked at.
        expected: What an honest coordinator can send.
        kept: The last model that was accepted, over restarts; None keeps it for this process only.

    Guarantees:
        A model passes only if no hidden layer divides directions beyond what `Looks` allows; if it is the first model
        where no step was made yet; and if it is no further from the last accepted one than the steps in between can lead.
        Where the plan clips, these are bounded by its public numbers (`server_steps`). Where it does not, nothing bounds a
        step, and `TRIPWIRE` times this site's own largest update is a tripwire, no proof.
    """

    def __init__(self, who: str, looks: Looks, expected: Expected, kept: Kept | None) -> None:
        self._who = who
        self._looks = looks
        self._expected = expected
        self._kept = kept
        self._dim = looks.initial.model.size
        self._number, self._last, self._own = 0, looks.initial, 0.0
        entry = kept.newest() if kept is not None else None
        if entry is not None and len(entry[1]) == _ID + _OWN.size + 4 * self._dim:
            model = np.frombuffer(entry[1], "<f4", offset=_ID + _OWN.size)
            self._number, self._last = entry[0], Look("kept", model, None)
            (self._own,) = _OWN.unpack_from(entry[1], _ID)

    def require(self, task: ProtocolMessage, payload: Vector, digest: str) -> None:
        """Accept the model of a task, or say which check it fails.

        Args:
            task: What is asked.
            payload: The vector that came with it: the model, and what rides along; finite.
            digest: Of the payload, in hex.

        Raises:
            ProtocolError: If a check fails.
        """
        look = self._looks.at(payload[: self._dim], digest)
        number = self._steps_made(task)
        if number == 0:  # whatever was seen since
            since, allowed = self._looks.initial, _SAME * self._looks.initial.length
        else:
            since, allowed = self._last, self._allowed(number)
        moved = since.distance(look)
        if not moved <= allowed:
            raise self._refusal(
                f"a model within {allowed:.4g} of " + ("the run's first" if number == 0 else "the last that it accepted"),
                f"one at {moved:.4g}", "Ask the coordinator what it sent: no honest step leads so far",
            )  # fmt: skip
        if look.fault is not None:
            raise self._refusal("hidden layers that training can lead to", look.fault,
                                "Such a layer copies single records into the update")  # fmt: skip
        if number is not None and number > self._number:
            self._number, self._last = number, look
            if self._kept is not None:
                state = bytes.fromhex(digest)[:_ID] + _OWN.pack(self._own) + pack_vector(look.model)
                self._kept.keep(number, state)

    def trained(self, update: Vector) -> None:
        """Note this site's own update: it tells of what size steps are where the plan bounds none."""
        self._own = max(self._own, length(update[: self._dim]))

    def close(self) -> None:
        """Forget the run's last model."""
        if self._kept is not None:
            self._kept.forget()

    def _steps_made(self, task: ProtocolMessage) -> int | None:
        """Return how many steps lead to a task's model; None for the run's result, which may be any or a mean of them."""
        number = task.round if task.kind == "evaluate" else max(task.round - 1, 0)
        return None if number > self._expected.rounds else number

    def _allowed(self, number: int | None) -> float:
        """Return how far from the last accepted model the next may be."""
        if number is None:
            return max(self._path(0, self._number), self._path(self._number, self._expected.rounds))
        if number == self._number:  # both came of one step from the model before, or one was taken back
            return 2 * self._path(max(0, number - max(1, self._expected.back)), number)
        return self._path(max(0, min(number, self._number) - self._expected.back), max(number, self._number))

    def _path(self, first: int, last: int) -> float:
        """Return how far the steps of rounds first + 1 to last can lead."""
        moved = 0.0
        for number in range(first + 1, last + 1):
            step = self._expected.steps[self._expected.phase_of(number)]
            if step.reach is not None:
                moved += step.reach.fixed + step.reach.slope * (self._last.length + moved)
            elif step.gain is not None and self._own > 0:
                moved += TRIPWIRE * self._expected.work * step.gain * self._own
            else:
                return math.inf
        return moved

    def _refusal(self, needs: str, got: str, hint: str) -> ProtocolError:
        return ProtocolError.of(f"site {self._who}", needs=needs, got=got, hint=hint)
