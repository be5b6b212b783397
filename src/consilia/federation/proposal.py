"""One submitted plan, from its proposal to the sites until enough of them agreed."""

import math
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from consilia.core.errors import PlanError
from consilia.federation.assemble import Assembled, RowShape, assemble, require_rules
from consilia.federation.enrolment import Enrolment
from consilia.federation.offer import Offer
from consilia.plan.schema import Plan
from consilia.rounds.gather import quorum
from consilia.rounds.ports import Clock, Transport

ASKED = 120.0  # seconds a site may take to read its rows and build the model
AGAIN = 2.0  # seconds before a site that waits for its steward is asked again


@dataclass
class Proposal:
    """A plan on its way to becoming a run.

    Attributes:
        run: Id of the run.
        plan: As it travels.
        names: The sites that it is for.
        initial: The file of its first weights, where it names any.
        patience: Seconds that sites which may yet agree are waited for once enough have.
        clock: Monotonic seconds.
        assembled: The checked plan, once the sites' numbers are known.
    """

    run: str
    plan: Plan
    names: tuple[str, ...]
    initial: Path | None
    patience: float
    clock: Clock = time.monotonic
    assembled: Assembled | None = None
    enrolment: Enrolment = field(init=False)
    _enough_since: float | None = None
    _not_before: dict[str, float] = field(default_factory=dict)
    _misses: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.enrolment = Enrolment(self.names)

    @classmethod
    def resumed(cls, run: str, assembled: Assembled, initial: Path | None, patience: float) -> "Proposal":
        """Return the proposal of a run that has begun: its numbers stand, and sites are only asked whether they are there."""
        names = tuple(terms.name for terms in assembled.run_plan.sites)
        return cls(run, assembled.run_plan.plan, names, initial, patience, assembled=assembled)

    def counts(self) -> Mapping[str, int] | None:
        """Return every site's registered number; None as long as one is missing."""
        if self.assembled is not None:
            return {terms.name: terms.count for terms in self.assembled.run_plan.sites}
        stated = self.plan.sites.counts
        if isinstance(stated, dict):
            return {name: stated[name] for name in self.names if name in stated}
        told = {name: self.enrolment.surveyed[name].count for name in self.names if name in self.enrolment.surveyed}
        return (
            {name: count for name, count in told.items() if count is not None} if len(told) == len(self.names) else None
        )

    def advance(self, transport: Transport, connected: Collection[str]) -> None:
        """Ask the sites that are there what is still to be known.

        Raises:
            PlanError: If the plan cannot be run as it stands.
        """
        there = [name for name in self.names if name in connected]
        if self.assembled is None:
            require_rules(self.plan)
            missing = [name for name in there if name not in self.enrolment.surveyed and self._may_agree(name)]
            if missing := self._whose_turn(missing):
                began = self.clock()
                self.enrolment.survey(transport, Offer(self.run, self.plan, {}, ""), missing, ASKED)
                self._note(missing, began)
            self._assemble()
        if self.assembled is not None and (asked := self._whose_turn(
            name for name in there if name in self.enrolment.undecided
        )):  # fmt: skip
            began = self.clock()
            self.enrolment.offer(transport, self.offer(), self._weights(), asked, ASKED)
            self._note(asked, began)

    def offer(self) -> Offer:
        """Return what is offered, once the numbers are known."""
        if self.assembled is None:
            raise TypeError("nothing to offer yet")
        return Offer(self.run, self.plan, dict(self.counts() or {}), self.assembled.run_plan.digest)

    def ready(self) -> bool:
        """Return True if enough sites agreed, and those that may yet agree were waited for."""
        if self.assembled is None or len(self.enrolment.accepted) < self.needed():
            self._enough_since = None
            return False
        if self._enough_since is None:
            self._enough_since = self.clock()
        return not self.enrolment.undecided or self.clock() - self._enough_since >= self.patience

    def needed(self) -> int:
        """Return how many sites must agree before a round can count."""
        if self.assembled is None:
            return 1
        plan = self.assembled.run_plan
        cohort = max(map(len, plan.schedule), default=0)
        fewest = 1 if plan.secure is None else plan.secure.fewest
        return max(fewest, quorum(plan.plan.aggregation.quorum, cohort))

    def hopeless(self) -> str | None:
        """Return why this plan will never be a run: too many sites refused it, a line each; None as long as it may."""
        may = [name for name in self.names if self._may_agree(name)]
        if len(may) >= self.needed() and (self.counts() is not None or len(may) == len(self.names)):
            return None
        reasons = "".join(f"\n{name}: {self.enrolment.reasons.get(name, 'refused')}" for name in self.names
                          if name not in may)  # fmt: skip
        must = (
            f"{self.needed()} must"
            if self.counts() is not None
            else "all must, as the plan registers no numbers of rows"
        )
        return f"{len(may)} of {len(self.names)} sites may take part, {must}:{reasons}"

    def still_out(self) -> str:
        """Return which sites have not agreed, and why, a line each."""
        answers, reasons = self.enrolment.answers, self.enrolment.reasons
        return "".join(f"\n{name}: {reasons.get(name) or answers.get(name, 'never connected')}" for name in self.names
                       if answers.get(name) != "accepted")  # fmt: skip

    def _may_agree(self, name: str) -> bool:
        return self.enrolment.answers.get(name) != "refused"

    def _whose_turn(self, names: Iterable[str]) -> list[str]:
        now = self.clock()
        return [name for name in names if now >= self._not_before.get(name, -math.inf)]

    def _note(self, asked: Sequence[str], began: float) -> None:
        """Decide when those who were asked may be asked again.

        Everybody else, and every round of a run, stands still while a site is asked: one that used up its time gets it
        once more at once, for what it reads is read by then, and later ever more rarely.
        """
        now = self.clock()
        for name in asked:
            answer = self.enrolment.answers.get(name)
            if answer == "waiting":
                self._not_before[name] = now + AGAIN
            elif answer == "silent" and now - began >= ASKED:
                self._misses[name] = min(self._misses[name] + 1, 8)
                self._not_before[name] = now + (2 ** self._misses[name] - 2) * ASKED
            else:
                self._misses.pop(name, None)

    def _weights(self) -> bytes:
        if self.initial is None:
            return b""
        try:
            return self.initial.read_bytes()
        except OSError as error:
            raise PlanError.of("plan key model.initial", needs=f"a file at {self.initial}",
                               got=error.strerror or "an error",
                               hint="Copy the weights there before the plan is submitted") from None  # fmt: skip

    def _assemble(self) -> None:
        counts, shape = self.counts(), self._shape()
        if counts is not None and shape is not None:
            self.assembled = assemble(self.plan, shape, counts, self.initial)

    def _shape(self) -> RowShape | None:
        """Return the shape that most sites' rows have; the others are told apart by name."""
        found: Sequence[tuple[str, RowShape]] = [
            (name, one.shape) for name, one in sorted(self.enrolment.surveyed.items())
        ]
        if not found:
            return None
        (shape, _), *_ = Counter(shape for _, shape in found).most_common()
        for name, other in found:
            if other != shape:
                self.enrolment.answers[name] = "refused"
                self.enrolment.reasons[name] = f"its rows are {_told(other)}, those of the others {_told(shape)}"
        return shape


def _told(shape: RowShape) -> str:
    return f"of shape {shape.input_shape} with {shape.classes} classes"
