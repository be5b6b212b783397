"""The coordinator's half of two-phase rounds: idle sites prepare updates, and those that are ready first are added."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from consilia.core.canonical import Json
from consilia.core.update import ProtocolMessage, Release
from consilia.plan.run_plan import RunPlan
from consilia.rounds.asynchronous.background import Asked, Background, Came, Found
from consilia.rounds.asynchronous.cohort import Cohort
from consilia.rounds.exchange import Traffic
from consilia.rounds.gather import Gathered, Scored
from consilia.rounds.ports import Transport


class Adder(Protocol):
    """Adds updates that wait at sites, and asks for scores."""

    def add(self, cohort: Cohort, payload: bytes, counted: Mapping[str, int]) -> Gathered:
        """Return the sum of the updates that wait at a cohort."""
        ...

    def scores(
        self, number: int, payload: bytes, counted: Mapping[str, int], of: Sequence[str] | None = None
    ) -> Scored:
        """Ask sites how a model does on their held-out rows; all of them when `of` is absent."""
        ...

    def stepped(self, model_digest: str) -> dict[str, Json] | None:
        """Hear which model, as it is sent, came of the last sum; return what is to be written down of it."""
        ...


def readiness(plan: RunPlan, *, run: str, transport: Transport) -> Background[None]:
    """Return who prepares an update, and at whom one waits: what waits stays at the site."""
    return Background(plan, run=run, transport=transport, kind="prepare", read=_said)


def _said(asked: Asked, site: str, item: Release | ProtocolMessage) -> Came[None] | str | None:
    if not isinstance(item, ProtocolMessage) or item.kind != "ready":
        return None  # a message of a sum that was on its way for long
    began = item.body.get("version")
    if not isinstance(began, int) or isinstance(began, bool) or not 0 <= began <= asked.version:
        return "is ready with an update of a version that never was"
    return Came(began, None, item.body)


class TwoPhase:
    """Rounds in two phases: sites prepare updates when they can; a round adds those of the first that are ready.

    Args:
        plan: The checked plan.
        background: Who is ready.
        adder: Adds what waits.
    """

    def __init__(self, plan: RunPlan, background: Background[None], adder: Adder) -> None:
        self._rounds = len(plan.schedule)
        self._background = background
        self._adder = adder
        self._last: tuple[str, ...] = ()

    def wait(self, number: int, payload: bytes, counted: Mapping[str, int], version: int) -> Found[None]:
        """Return who is ready; see `Background.wait`."""
        return self._background.wait(number, payload, counted, version)

    def add(self, cohort: Cohort, payload: bytes, counted: Mapping[str, int]) -> Gathered:
        """Return the sum of the updates that wait at a cohort."""
        self._last = cohort.names
        return self._adder.add(cohort, payload, counted)

    def scores(self, number: int, payload: bytes, counted: Mapping[str, int]) -> Scored:
        """Ask a round's cohort how a model does on held-out rows; of the result, every site that can be asked."""
        asked = self._background.settle() if number > self._rounds else self._last
        return self._adder.scores(number, payload, counted, asked) if asked else Scored({}, None, Traffic())

    def stepped(self, model_digest: str) -> dict[str, Json] | None:
        """Hear which model, as it is sent, came of the last sum; return what is to be written down of it."""
        return self._adder.stepped(model_digest)
