"""One tree of errors, one wording.

ConsiliaError              exit 1
├── PlanError              exit 2   the plan asks for something that cannot be done
│   ├── IllegalChain       exit 2   two transforms of a pipeline do not fit together
│   └── PolicyError        exit 2   a site's policy cannot be read
├── DataError              exit 2   a data file cannot be used as the plan says
├── BudgetExceeded         exit 3   a ledger refuses a charge
├── ProtocolError          exit 4   a message breaks the rules of the round
├── StoreError             exit 5   a ledger, journal, key or roster cannot be read, written or trusted
└── TransportError         exit 6   the other end cannot be reached, or is not who it must be

Every error carries all faults found at once, each as "{who} needs {what}; got {what}. {what to do}."
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Self


@dataclass(frozen=True)
class Problem:
    """One fault: who needs what, what came instead, and what to do about it."""

    who: str
    needs: str
    got: str
    hint: str

    def __str__(self) -> str:
        hint = f"{self.hint}." if self.hint and not self.hint.endswith((".", "?")) else self.hint
        return f"{self.who} needs {self.needs}; got {self.got}." + (f" {hint}" if hint else "")


class ConsiliaError(Exception):
    """The root: anything that a caller, a file or a peer can cause."""

    exit_code: ClassVar[int] = 1

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    @classmethod
    def of(cls, who: str, *, needs: str, got: object, hint: str) -> Self:
        """Build the error from its one fault."""
        return cls([Problem(who, needs, str(got), hint)])


class PlanError(ConsiliaError):
    """The plan asks for something that cannot be done."""

    exit_code = 2


class IllegalChain(PlanError):  # noqa: N818  (the name the design uses)
    """Two transforms of a pipeline do not fit together."""


class PolicyError(PlanError):
    """A site's policy cannot be read: it agrees to nothing then."""


class DataError(ConsiliaError):
    """A data file cannot be used as the plan says."""

    exit_code = 2


class BudgetExceeded(ConsiliaError):  # noqa: N818
    """A ledger refuses a charge."""

    exit_code = 3


class ProtocolError(ConsiliaError):
    """A message breaks the rules of the round."""

    exit_code = 4


class StoreError(ConsiliaError):
    """A ledger, journal, key or roster cannot be read, written or trusted."""

    exit_code = 5


class TransportError(ConsiliaError):
    """The other end cannot be reached, or is not who it must be."""

    exit_code = 6
