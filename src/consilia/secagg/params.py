"""What a session of secure aggregation is about, and how many sites it needs: each site works both out for itself."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

from consilia.core.canonical import canonical_bytes
from consilia.core.errors import PlanError, Problem
from consilia.core.ring import Ring
from consilia.secagg.roster import Roster

FEWEST = 3  # the sum of two is no secret from either of them
PURPOSES = ("update", "evaluation")
ADVERSARIES = ("active", "passive")
ID_SIZE = 16


def least_threshold(adversary: str, count: int) -> int:
    """Return the least number of shares that must be needed to open a secret shared among `count` sites.

    Args:
        adversary: "active" if the coordinator may lie to sites, "passive" if it follows the protocol.
        count: Holders of the shares.

    Source:
        Bonawitz et al. (2017), Practical secure aggregation for privacy-preserving machine learning, sections 6.1 and 6.2:
        more than half against a passive coordinator. More than two thirds against an active one that pools what it knows
        with less than a third of the sites: two groups of so many sites then share an honest one.
    """
    return 2 * count // 3 + 1 if adversary == "active" else count // 2 + 1


def most_colluders(adversary: str, count: int) -> int:
    """Return how many of `count` sites may pool what they know with the coordinator.

    Fewer than open a secret. An active coordinator may also show two lists of survivors, and colluders vote for both: two
    groups of t of n sites have 2 t - n in common, and one of these must be honest.

    Args:
        adversary: "active" or "passive".
        count: n, the cohort.
    """
    threshold = least_threshold(adversary, count)
    return (2 * threshold - count if adversary == "active" else threshold) - 1  # 2 t - n is never above t


@dataclass(frozen=True)
class Session:
    """What every site of a session must agree on, down to the last byte, before any of it is of use.

    All of it comes from the plan that the site has checked, and from the model it was given; only `session_id` is the
    coordinator's. Every key, signature and commitment depends on `context`, so a message from another run, round, model,
    plan, roster or session is none here.

    Attributes:
        run: The run's id.
        round: Number of the round, from 1.
        purpose: "update" or "evaluation".
        plan_digest: Hex digest of the plan.
        model_digest: Hex digest of the model that the sites start from.
        roster: The consortium's sites.
        cohort: Names of the sites asked in this round, ascending.
        session_id: 16 bytes that the coordinator drew.
        adversary: "active" or "passive": what the threshold must withstand.
        fewest: The sum of fewer sites than this is never opened.
        colluders: Sites that may pool what they know with the coordinator.
        ring: Where the vectors are added.
        dim: Length of the vectors.

    Raises:
        PlanError: Naming everything that is wrong.
    """

    run: str
    round: int
    purpose: str
    plan_digest: str
    model_digest: str
    roster: Roster
    cohort: tuple[str, ...]
    session_id: bytes
    adversary: str
    fewest: int
    colluders: int
    ring: Ring
    dim: int

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if not problems and not max(FEWEST, self.threshold) <= self.fewest <= len(self.cohort):
            problems.append(Problem(
                "a secure sum",
                f"between {max(FEWEST, self.threshold)} and {len(self.cohort)} sites to answer ({self.adversary} adversary)",
                f"{self.fewest}", "Ask more sites in a round, or tolerate fewer dropouts",
            ))  # fmt: skip
        if not problems and self.colluders > (most := most_colluders(self.adversary, len(self.cohort))):
            problems.append(Problem("a secure sum", f"at most {most} colluders ({self.adversary} adversary)",
                                    f"{self.colluders}", "Ask more sites in a round, or tolerate fewer"))  # fmt: skip
        if problems:
            raise PlanError(problems)

    def _problems(self) -> Iterator[Problem]:
        hint = "Build sessions from the checked plan"
        for name, value, least in (("round", self.round, 1), ("fewest", self.fewest, FEWEST),
                                   ("colluders", self.colluders, 0), ("dim", self.dim, 1)):  # fmt: skip
            if type(value) is not int or value < least:  # a bool is an int to isinstance
                yield Problem(f"{name} of a session", f"a whole number of at least {least}", repr(value), hint)
        for name, text in (("run", self.run), ("plan_digest", self.plan_digest), ("model_digest", self.model_digest)):
            if type(text) is not str or not text:
                yield Problem(f"{name} of a session", "a text", repr(text), hint)
        for name, choice, choices in (("purpose", self.purpose, PURPOSES), ("adversary", self.adversary, ADVERSARIES)):
            if type(choice) is not str or choice not in choices:
                yield Problem(f"{name} of a session", f"one of {', '.join(choices)}", repr(choice), hint)
        if type(self.session_id) is not bytes or len(self.session_id) != ID_SIZE:
            yield Problem("session_id of a session", f"{ID_SIZE} bytes", repr(self.session_id), hint)
        if type(self.cohort) is not tuple or list(self.cohort) != sorted(set(self.cohort) & set(self.roster.by_name)):
            yield Problem("cohort of a session", "names of the roster, ascending", repr(self.cohort), hint)

    @cached_property
    def threshold(self) -> int:
        """Sites that must vote for the same survivors before a share is given away; with full graphs also Shamir's t.

        Counted from the whole cohort, not from those who answered: a coordinator that leaves sites out lowers nothing.
        """
        return least_threshold(self.adversary, len(self.cohort))

    @cached_property
    def context(self) -> bytes:
        """SHA-256 over all of it, 32 bytes."""
        return sha256(canonical_bytes({
            "protocol": "consilia secagg 1", "run": self.run, "round": self.round, "purpose": self.purpose,
            "plan": self.plan_digest, "model": self.model_digest, "roster": self.roster.digest,
            "cohort": self.cohort, "session": self.session_id.hex(), "adversary": self.adversary, "fewest": self.fewest,
            "colluders": self.colluders, "bits": self.ring.bits, "dim": self.dim,
        })).digest()  # fmt: skip

    def number(self, site: str) -> int:
        """Return a site's number among the holders of shares, from 1."""
        return self._numbers[site]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.cohort, 1)}
