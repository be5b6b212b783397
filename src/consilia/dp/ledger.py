"""The ledger's rules: what a run may charge to a population. No disk; the hash chain is in `dp.chain`.

A run gets an `Allotment` before it starts; from then on the whole allotment counts as spent, used or not.
Within the run every release is first reserved, then committed.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple, cast

from consilia.core.canonical import Json
from consilia.core.errors import BudgetExceeded, Problem
from consilia.core.spec import Adjacency
from consilia.dp.chain import unreadable
from consilia.dp.event import AnyEvent, event_from_json
from consilia.dp.search import Search


class Relation(NamedTuple):
    """What a bound speaks of: how neighbouring data sets differ, and who looks. Bounds add up within one only."""

    adjacency: Adjacency
    against: str

    def __str__(self) -> str:
        return f"{self.adjacency} against {self.against}"


@dataclass(frozen=True)
class Allotment:
    """The most that one run may charge to one population.

    Attributes:
        run: Name of the run.
        population: The steward's name for the people in the data.
        events: Pairs (event, how often it may be charged).
        epsilon: Bound for all of `events` together at `delta`; infinity where the run claims none.
        delta: The delta of that bound.
        adjacency: How neighbouring data sets differ in that bound, and in every event.
        against: The adversary that it holds against.
        search: For a search of hyper-parameters: what its trials may charge. Its epsilon is for all of them, and it has
            no events of its own.
        within: For a trial: the run of the search whose allotment covers it. Its epsilon is that search's.
    """

    run: str
    population: str
    events: tuple[tuple[AnyEvent, int], ...]
    epsilon: float
    delta: float
    adjacency: Adjacency
    against: str
    search: Search | None = None
    within: str | None = None

    @property
    def relation(self) -> Relation:
        """What the bound speaks of."""
        return Relation(self.adjacency, self.against)

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """How often each event may be charged, by the event's digest."""
        counts: dict[str, int] = {}
        for event, times in self.events:
            counts[event.digest] = counts.get(event.digest, 0) + times
        return counts

    def to_json(self) -> dict[str, Json]:
        """Return plain values for the body of an `allot` entry (an infinite epsilon becomes null)."""
        value: dict[str, Json] = {
            "run": self.run,
            "population": self.population,
            "events": [[event.to_json(), times] for event, times in self.events],
            "epsilon": self.epsilon if math.isfinite(self.epsilon) else None,
            "delta": self.delta,
            "adjacency": str(self.adjacency),
            "against": self.against,
        }
        if self.search is not None:
            value["search"] = self.search.to_json()
        if self.within is not None:
            value["within"] = self.within
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Json]) -> "Allotment":
        """Read back what `to_json` wrote.

        Raises:
            StoreError: If a field is missing or of another kind.
        """
        try:
            pairs = cast("Sequence[tuple[dict[str, Json], int]]", value["events"])
            epsilon, search, within = value["epsilon"], value.get("search"), value.get("within")
            return cls(
                run=str(value["run"]),
                population=str(value["population"]),
                events=tuple((event_from_json(event), int(times)) for event, times in pairs),
                epsilon=math.inf if epsilon is None else float(cast("float", epsilon)),
                delta=float(cast("float", value["delta"])),
                adjacency=Adjacency(str(value["adjacency"])),
                against=str(value["against"]),
                search=None if search is None else Search.from_json(cast("Mapping[str, Json]", search)),
                within=None if within is None else str(within),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise unreadable("an allotment", error) from None


def spent(allotted: Iterable[Allotment]) -> dict[Relation, tuple[float, float]]:
    """Return the sums (epsilon, delta) over runs, one for each relation: what counts as spent.

    A trial of a search adds nothing: its search was admitted with the price of all of them.

    Guarantees:
        The releases of all runs of one relation together are (sum of epsilon, sum of delta)-differentially private for
        that adjacency and against that adversary, also where a later run's allotment was chosen after seeing the earlier
        runs' releases. Sums of different relations say nothing about one another.

    Source:
        Dwork and Roth (2014), The algorithmic foundations of differential privacy, section 3.5;
        Rogers, Roth, Ullman and Vadhan (2016), Privacy odometers and filters, for the adaptive choice.
    """
    groups: dict[Relation, list[Allotment]] = {}
    for item in allotted:
        if item.within is None:
            groups.setdefault(item.relation, []).append(item)
    sums = {relation: _exact_sums(items) for relation, items in groups.items()}
    return {r: (math.inf if epsilon is None else float(epsilon), float(delta)) for r, (epsilon, delta) in sums.items()}


def admit(allotted: Sequence[Allotment], new: Allotment, limit: float | None) -> None:
    """Check that a new run's allotment fits a population's budget beside those already admitted.

    An allotment that is already among `allotted` counts as spent: it passes, whatever the limit has become since (a
    resumed run).

    Args:
        allotted: Every allotment that this population's ledger ever admitted, closed runs included.
        new: The allotment asked for.
        limit: The steward's epsilon for the population over all runs; None where there is none. Under a limit all runs
            must be of one relation: otherwise no sum could be held against it.

    Raises:
        BudgetExceeded: With every reason at once.
    """
    if new in allotted:
        return
    problems: list[Problem] = []
    who = f"the ledger of {new.population!r}"
    strangers = sorted({old.population for old in allotted} - {new.population})
    if strangers:
        problems.append(Problem(who, "allotments of this population only", ", ".join(map(repr, strangers)),
                                "Ask the ledger of the population that the plan names"))  # fmt: skip
    if not (new.epsilon >= 0 and 0 <= new.delta < 1) or any(times < 0 for _, times in new.events):
        problems.append(Problem(who, "epsilon at least 0, delta in [0, 1) and counts at least 0",
                                f"epsilon {new.epsilon}, delta {new.delta}",
                                "Compute the allotment with the accountant"))  # fmt: skip
    bases = () if new.search is None else new.search.bases
    foreign = sorted({event.adjacency for base in (new.events, *bases) for event, _ in base} - {new.adjacency})
    if foreign:
        problems.append(Problem(who, f"events stated for {new.adjacency}", ", ".join(foreign),
                                "Charge every mechanism for the run's own neighbouring relation"))  # fmt: skip
    if any(old.run == new.run for old in allotted):
        problems.append(Problem(who, f"run {new.run!r} to keep its allotment",
                                "another one under the same name", "Give the changed plan a new run"))  # fmt: skip
    if new.within is not None:
        problems += _outside(allotted, new, who)
    elif not problems:
        same = [old for old in allotted if old.relation == new.relation and old.within is None]
        if limit is not None:
            problems += _beyond(limit, same, {old.relation for old in allotted} - {new.relation}, new, who)
        delta = _exact_sums([*same, new])[1]
        if delta >= 1:
            problems.append(Problem(who, "a total delta below 1", f"{float(delta):g}",
                                    "Such a guarantee is empty: ask for a smaller privacy.delta"))  # fmt: skip
    if problems:
        raise BudgetExceeded(problems)


def _outside(allotted: Sequence[Allotment], new: Allotment, who: str) -> Iterator[Problem]:
    """Return why a trial is none that its search was admitted for."""
    found = next((old for old in allotted if old.run == new.within and old.search is not None), None)
    if found is None or found.search is None:
        yield Problem(who, f"search {new.within!r} admitted before its trials", "none", "Allot the search first")
        return
    if (new.relation, new.epsilon, new.delta) != (found.relation, found.epsilon, found.delta):
        yield Problem(
            who, f"a trial with the claim of its search {found.run!r}", "another", "Give it the search's claim"
        )
    if not found.search.holds(new.events):
        yield Problem(who, f"a trial that charges what search {found.run!r} was admitted for", "other events",
                      "Nothing was released; start a new search")  # fmt: skip
    if sum(old.within == new.within for old in allotted) >= found.search.trials:
        yield Problem(who, f"at most the trials that search {found.run!r} drew", "one more",
                      "All of them are charged; start a new search")  # fmt: skip


def _beyond(
    limit: float, same: Sequence[Allotment], others: Iterable[Relation], new: Allotment, who: str
) -> Iterator[Problem]:
    needs = f"an epsilon of at most {limit:g} over all runs"
    named = ", ".join(sorted(map(str, others)))
    unbounded = ", ".join(repr(old.run) for old in same if math.isinf(old.epsilon))
    if named:
        yield Problem(who, f"{needs}, which must be bounded alike", f"{named} before, {new.relation} in run {new.run!r}",
                      "Bounds of different relations or adversaries do not add up: keep to one under a limit")  # fmt: skip
    if math.isinf(new.epsilon):
        yield Problem(who, needs, f"run {new.run!r}, which claims no bound (anyone can recompute a reproducible run's noise)",
                      "Set run.reproducible = false: a ledger with a limit admits no such run")  # fmt: skip
    elif unbounded:
        yield Problem(who, needs, f"runs without any bound already admitted: {unbounded}",
                      "No sum over them is bounded, so no limit can be kept: leave ledger.max_epsilon out")  # fmt: skip
    elif not named:
        epsilon = _exact_sums([*same, new])[0]
        if epsilon is None or epsilon > _exact(limit):
            before = _exact_sums(same)[0]
            yield Problem(who, needs,
                          f"{float(before or 0):g} already allotted and {new.epsilon:g} asked for by run {new.run!r}",
                          "Ask for less, or let the steward raise it with `consilia ledger limit`")  # fmt: skip


def admit_charge(allotment: Allotment, charged: Mapping[str, int], event: AnyEvent) -> None:
    """Check that one more charge stays within a run's allotment. Constant time.

    Args:
        allotment: What the run was given.
        charged: How often each event was charged so far, by digest; holds count, committed or not.
        event: The event about to happen.

    Raises:
        BudgetExceeded: If the allotment has no such event, or none left.

    Guarantees:
        The charges of a run are at every moment a sub-multiset of its allotted events, so the allotment's
        (epsilon, delta) bounds what was released, however the run stops.
    """
    name = event.digest
    allowed, used = allotment.counts.get(name, 0), charged.get(name, 0)
    if used < allowed:
        return
    raise BudgetExceeded.of(
        f"run {allotment.run!r} on {allotment.population!r}",
        needs="a charge that its allotment still holds",
        got=f"charge {used + 1} of {allowed} allowed for {event.summary}",
        hint="Nothing was released; start a new run with a new allotment",
    )


def _exact(value: float) -> Fraction:
    # Through the shortest decimal: people write budgets in decimals, and 0.1 + 0.2 has to fit into 0.3.
    return Fraction(repr(float(value)))


def _exact_sums(allotted: Iterable[Allotment]) -> tuple[Fraction | None, Fraction]:
    epsilon: Fraction | None = Fraction(0)
    delta = Fraction(0)
    for item in allotted:
        delta += _exact(item.delta)
        epsilon = epsilon + _exact(item.epsilon) if epsilon is not None and math.isfinite(item.epsilon) else None
    return epsilon, delta
