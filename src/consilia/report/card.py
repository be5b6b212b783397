"""The privacy card: what a run claims, against whom, by what means, and what it does not cover. Words only, no markup.

The page, the model card and the command line all take their statements from here, so that they cannot differ.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from consilia.plan.facts import Facts
from consilia.plan.run_plan import ADVERSARIES
from consilia.report.leaves import leaves
from consilia.report.limits import not_covered
from consilia.report.mechanism import Group, Row, mechanism
from consilia.report.numbers import bound, plain
from consilia.report.phases import without_noise
from consilia.report.protections import protections
from consilia.report.secure import follows, secure_group

_WHO: Mapping[str, str] = {
    "server": "the coordinator, which sees every message of every site",
    "server+colluding-sites": "the coordinator together with any number of other sites",
    "other-sites": "the other sites, which see the model of every round",
    "world": "anyone who is given the released model",
}
_ADJACENCY: Mapping[str, str] = {
    "add-remove": "two data sets are neighbours when one has a single {unit} more than the other",
    "replace-one": "two data sets are neighbours when they differ in the content of a single {unit}",
    "zero-out": "two runs are neighbours when one site's contribution is replaced by nothing",
}
_WITHOUT: Mapping[str, str] = {
    "add-remove": "with or without any single {unit} of any one site",
    "replace-one": "whatever the content of any single {unit} of any one site",
    "zero-out": "with or without any single site's contribution",
}


@dataclass(frozen=True)
class Bounds:
    """Sites with the same bounds: their names, turns, and epsilon per adversary as text."""

    sites: tuple[str, ...]
    turns: int
    epsilon: tuple[str, ...]


@dataclass(frozen=True)
class Card:
    """The whole card.

    Attributes:
        verdict: "private", "open" (no privacy was asked for) or "not-private" (reproducible mode).
        headline: The claim in a line.
        statement: The claim in full.
        against: Against whom it holds, in a sentence.
        groups: The means.
        bounds: Epsilon per site and adversary.
        adversaries: (adversary, in words).
        heads: (site, head of its ledger).
        warnings: What `check` warned of.
        not_covered: What the claim does not say.
    """

    verdict: str
    headline: str
    statement: str
    against: str
    groups: tuple[Group, ...]
    bounds: tuple[Bounds, ...]
    adversaries: tuple[tuple[str, str], ...]
    heads: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    not_covered: tuple[str, ...]


def build(facts: Facts, heads: Mapping[str, str]) -> Card:
    """Put a run's numbers into words."""
    verdict = verdict_of(facts)
    return Card(
        verdict=verdict,
        headline=_headline(facts, verdict),
        statement=_statement(facts, verdict),
        against=f"Against {who(facts, facts['against'])}. The privacy card says what that covers, and what not.",
        groups=(
            _guarantee(facts, verdict),
            mechanism(facts),
            *secure_group(facts),
            protections(facts),
            leaves(facts),
            _identity(facts),
        ),
        bounds=bounds(facts),
        adversaries=tuple((adversary, who(facts, adversary)) for adversary in ADVERSARIES),
        heads=tuple(sorted(heads.items())),
        warnings=tuple(facts["warnings"]),
        not_covered=not_covered(facts),
    )


def who(facts: Facts, adversary: str) -> str:
    """Return an adversary in words; where noise is shared out, with how many sites it may pool."""
    secure = facts["secure"]
    if secure is None or not secure["distributed"]:
        return _WHO[adversary]
    many = secure["colluders"]
    words = {
        "server": "the coordinator, which sees the sum of each round",
        "server+colluding-sites": f"the coordinator together with up to {plain(many)} of the other sites" if many
        else "the coordinator together with other sites",
        "other-sites": f"up to {plain(max(many, 1))} of the other sites, which know their own share of the noise and see the "
        "model of every round",
        "world": _WHO["world"],
    }[adversary]  # fmt: skip
    return words + (", if it follows the protocol" if follows(secure) and adversary.startswith("server") else "")


def verdict_of(facts: Facts) -> str:
    """Return "private", "open" or "not-private"."""
    if facts["unit"] == "none":
        return "open"
    return "not-private" if facts["reproducible"] or facts["epsilon"] is None else "private"


def claim(facts: Facts) -> str:
    """Return the one line that a terminal prints: epsilon, delta, unit and against whom, or why there is no claim."""
    verdict = verdict_of(facts)
    if verdict == "open":
        return "no epsilon: the plan asks for no differential privacy"
    if verdict == "not-private" and not facts["reproducible"]:
        return f"no epsilon: {without_noise(facts)} add no noise"
    if verdict == "not-private":
        return "no epsilon: reproducible mode is not private, its noise follows from the public seed"
    return (
        f"epsilon {bound(facts['epsilon'])} at delta {bound(facts['delta'], 6)} for one {facts['unit']} "
        f"({facts['adjacency']}), against {who(facts, facts['against'])}"
    )


def _headline(facts: Facts, verdict: str) -> str:
    if verdict == "private":
        return f"({bound(facts['epsilon'])}, {bound(facts['delta'], 6)})-differentially private for one {facts['unit']}"
    return "No privacy was asked for" if verdict == "open" else "This run is not private"


def _statement(facts: Facts, verdict: str) -> str:
    if verdict == "open":
        return (
            "The sites sent their updates without noise. What a record can leak through them is not bounded: "
            "use such a run for public or synthetic data, or as the figure to compare private runs with."
        )
    if verdict == "not-private" and not facts["reproducible"]:
        return (
            f"In {without_noise(facts)} the sites' clipped contributions are released without noise. Noise in the other "
            "rounds protects what these release, not what those do: no (epsilon, delta) holds for the whole."
        )
    if verdict == "not-private":
        return (
            "Its noise and its batches follow from the public seed, so that the run can be repeated bit for bit; "
            "whoever knows the plan can subtract the noise. It claims no epsilon, whatever its noise multiplier."
        )
    epsilon = facts["epsilon"] or 0.0
    factor = bound(math.exp(epsilon), 3) if epsilon < 20 else f"e^{bound(epsilon)}"
    neighbours = _WITHOUT[facts["adjacency"]].format(unit=facts["unit"])
    return (
        f"Against {who(facts, facts['against'])}: {neighbours}, the probability of anything it can see in the "
        f"whole run changes by a factor of at most {factor} (e to the power epsilon), plus at most {bound(facts['delta'], 6)}. "
        "The figure is the largest over all sites and covers every round of the schedule, also when training stopped early."
    )


def _guarantee(facts: Facts, verdict: str) -> Group:
    claims = verdict == "private"
    nothing = "none: no claim is made"
    extra = max((site["extra_delta"] for site in facts["sites"]), default=0.0)
    cut = f"of it, at most {bound(extra, 2)} pays for batches cut at their cap" if extra else ""
    reason = facts["delta_reason"]
    notes = "; ".join(filter(None, (f"stated reason: {reason}" if reason else "", cut if claims else "")))
    return Group(
        "Guarantee",
        (
            Row("Unit of privacy", facts["unit"], "" if verdict == "open" else "one unit for the whole run"),
            Row("Adjacency", facts["adjacency"] if verdict != "open" else nothing,
                _ADJACENCY.get(facts["adjacency"], "").format(unit=facts["unit"]) if verdict != "open" else ""),
            Row("Epsilon", bound(facts["epsilon"]) if claims else nothing,
                "largest bound over all sites, rounded up" if claims else ""),
            Row("Delta", bound(facts["delta"], 6) if facts["delta"] is not None else "none", notes),
            Row("Against", facts["against"] if verdict != "open" else nothing,
                who(facts, facts["against"]) if verdict != "open" else ""),
            Row("Accountant", facts["accountant"],
                "the tightest valid bound of RDP and PLD" if claims and facts["stack"] is None else ""),
        ),
    )  # fmt: skip


def _identity(facts: Facts) -> Group:
    limit = facts["max_epsilon"]
    return Group(
        "Identity",
        (
            Row("Plan", facts["digest"][:16], "begin of the SHA-256 of plan and registered numbers"),
            Row("Software", f"Consilia {facts['version']}"),
            Row("Population", facts["population"], "the ledgers add up all runs under this name"),
            Row("Limit of the ledgers", "none in the plan" if limit is None else f"epsilon {plain(limit)} over all runs",
                "a site's ledger may hold a lower one"),
            Row("Randomness", "public seed (reproducible mode)" if facts["reproducible"] else "the operating system's",
                "for noise and secret batches"),
        ),
    )  # fmt: skip


def bounds(facts: Facts) -> tuple[Bounds, ...]:
    """Gather sites whose bounds and turns are the same."""
    table: dict[tuple[int, tuple[str, ...]], list[str]] = {}
    for site in facts["sites"]:
        row = tuple(bound(site["epsilon"][who]) for who in ADVERSARIES)
        table.setdefault((site["participations"], row), []).append(site["name"])
    return tuple(Bounds(tuple(names), turns, row) for (turns, row), names in table.items())
