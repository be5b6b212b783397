"""Rules on secure sums: what a mode can show, who must answer, and where noise may be shared out.

Source: the project's decisions on privacy claims; docs/guarantees.md; docs/decisions/0019-*.md to 0021-*.md.
"""

from collections import Counter
from collections.abc import Iterator

from consilia.core.errors import Problem
from consilia.plan.grid import is_distributed, parties
from consilia.plan.schedule import Schedule
from consilia.plan.schema import AggregationSection, Plan
from consilia.plan.secure import SecureTerms
from consilia.secagg.params import FEWEST, most_colluders

_SUM_ONLY = ("masks", "rlwe", "paillier")
_ONE_SITE = {
    "paillier": "Every site holds the key: one that sides with the coordinator decrypts everything.",
    "rlwe": "One site that is shown others' vectors can send one made out of them, and have a single one opened.",
}


def secure_rules(plan: Plan) -> list[Problem]:
    """Return the rules on [secure_sum] and on distributed noise that the plan breaks."""
    found = [*_adversary(plan)]
    if plan.secure_sum.mode != "none":
        found += [*_mode(plan), *_noise(plan)]
    if is_distributed(plan):
        found += _distributed(plan)
    return found


def secure_problems(plan: Plan, cohort: int | None) -> list[Problem]:
    """Return what is wrong with who must answer in a secure sum.

    Args:
        plan: The plan.
        cohort: Sites that a round asks, the most of any round; None where that is not known yet.
    """
    terms = None if cohort is None else parties(plan, cohort)
    return [] if terms is None else [*_answers(plan, terms)]


def too_short(plan: Plan, asked: Schedule) -> int:
    """Return how many rounds ask too few sites for the plan's secure sum: no sum of theirs is opened."""
    found = 0
    for size, rounds in Counter(map(len, asked)).items():
        terms = parties(plan, size)
        if terms is not None and terms.fewest < max(FEWEST, terms.threshold):
            found += rounds
    return found


def _mode(plan: Plan) -> Iterator[Problem]:
    section, who = plan.secure_sum, f'plan key secure_sum.mode = "{plan.secure_sum.mode}"'
    if plan.training.algorithm == "stacking":
        yield Problem(who, 'training.algorithm = "fedavg" or "fedsgd"', '"stacking"',
                      "A site answers once and is private by itself: its answers are kept, not added")  # fmt: skip
    if section.mode == "attested" and section.policy is None:
        yield Problem("plan key secure_sum.policy", f'a file with secure_sum.mode = "{section.mode}"', "nothing",
                      "Without a policy any genuine machine passes, whatever it runs")  # fmt: skip
    if section.mode == "rlwe" and plan.aggregation.selection != "all":
        yield Problem(who, 'aggregation.selection = "all"', f'"{plan.aggregation.selection}"',
                      "Its sites hold the key in parts and open each sum together: ask all, or use masks")  # fmt: skip
    if section.mode in _ONE_SITE and section.colluders:
        yield Problem("plan key secure_sum.colluders", f'0 with secure_sum.mode = "{section.mode}"', f"{section.colluders}",
                      f"{_ONE_SITE[section.mode]} Set it to 0, or use masks")  # fmt: skip


def _noise(plan: Plan) -> Iterator[Problem]:
    privacy, mode = plan.privacy, plan.secure_sum.mode
    if privacy.unit != "none" and privacy.noise == "server" and mode != "attested":
        # Rounding moves a bounded vector too, and shares of the same noise bound the coordinator as well.
        yield Problem('plan key privacy.noise = "server"', 'secure_sum.mode = "none" or "attested"', f'"{mode}"',
                      'Set privacy.noise = "distributed": as much noise, which also holds against the coordinator')  # fmt: skip


def _adversary(plan: Plan) -> Iterator[Problem]:
    section, privacy = plan.secure_sum, plan.privacy
    if privacy.unit == "none" or privacy.against != "server+colluding-sites" or privacy.noise == "site":
        return
    if privacy.noise == "server":
        yield Problem('plan key privacy.against = "server+colluding-sites"', "noise that is drawn before the server sees a sum",
                      'privacy.noise = "server"', 'Set privacy.noise = "site", or privacy.against = "world"')  # fmt: skip
    elif not section.colluders:
        yield Problem("plan key secure_sum.colluders", 'at least 1 with privacy.against = "server+colluding-sites"', "0",
                      'Say how many sites may collude, or set privacy.against = "server"')  # fmt: skip


def _distributed(plan: Plan) -> Iterator[Problem]:
    privacy, training, who = plan.privacy, plan.training, 'plan key privacy.noise = "distributed"'
    mode = plan.secure_sum.mode
    if mode not in _SUM_ONLY:
        attested = (
            'use privacy.noise = "server": the attested code adds it'
            if mode == "attested"
            else 'privacy.noise = "site"'
        )
        yield Problem(who, 'a secure sum that shows only the sum: secure_sum.mode = "masks", "rlwe" or "paillier"',
                      f'"{mode}"', f'Set secure_sum.mode = "masks", or {attested}')  # fmt: skip
    if privacy.within_site and training.algorithm != "fedsgd":
        yield Problem(
            who,
            f'one clipped sum a round (training.algorithm = "fedsgd") with privacy.unit = "{privacy.unit}"',
            f'training.algorithm = "{training.algorithm}"',
            'Set training.algorithm = "fedsgd", privacy.noise = "site", or privacy.unit = "site"',
        )
    if privacy.within_site and training.weight_decay > 0:
        # It adds a multiple of the weights, which no clip norm bounds, and integers need a bound.
        yield Problem("plan key training.weight_decay", '0 with privacy.noise = "distributed"', f"{training.weight_decay:g}",
                      "Set it to 0, or use noise at the site")  # fmt: skip
    if plan.aggregation.selection == "poisson":
        yield Problem(who, "rounds that ask the same number of sites", 'aggregation.selection = "poisson"',
                      'Use aggregation.selection = "all" or "count": each site\'s share is sized for that number')  # fmt: skip


def _answers(plan: Plan, terms: SecureTerms) -> Iterator[Problem]:
    needs, asked = terms.threshold, f"{terms.cohort} asked, {terms.dropouts} may drop out"
    if terms.fewest < FEWEST:
        yield Problem(f'plan key secure_sum.mode = "{terms.mode}"', f"at least {FEWEST} answers a round",
                      f"{max(terms.fewest, 0)} ({asked})",
                      "Ask more sites or tolerate fewer dropouts: of two, each reads the other off the sum")  # fmt: skip
        return
    if terms.fewest < needs:
        yield Problem("plan key secure_sum.dropouts", f"at most {terms.cohort - needs}: {needs} of {terms.cohort} sites have "
                      f"to help to open a sum", f"{terms.dropouts}", _fewer(terms))  # fmt: skip
    if terms.mode == "masks" and terms.colluders > _most(terms):
        why = "more of them get two lists of survivors voted for" if _lies(terms) else f"{needs} sites open any vector"
        yield Problem("plan key secure_sum.colluders", f"at most {_most(terms)}: {why}", f"{terms.colluders}",
                      "Lower it, or ask more sites a round")  # fmt: skip
    elif terms.honest < 2:
        yield Problem("plan key secure_sum.colluders", "at least two answers of sites that do not collude",
                      f"{max(terms.honest, 0)} ({asked}, {terms.colluders} may collude)",
                      "Lower it or secure_sum.dropouts: colluders subtract their own vectors from the sum")  # fmt: skip
    yield from _quorum(plan, terms)


def _lies(terms: SecureTerms) -> bool:
    return terms.mode == "masks" and terms.adversary == "active"


def _most(terms: SecureTerms) -> int:
    return most_colluders(terms.adversary, terms.cohort)


def _fewer(terms: SecureTerms) -> str:
    return "Lower it, or ask more sites a round" + (
        ', or set secure_sum.adversary = "passive" if the coordinator is trusted to follow the protocol'
        if _lies(terms)
        else ""
    )


def _quorum(plan: Plan, terms: SecureTerms) -> Iterator[Problem]:
    quorum = plan.aggregation.quorum
    if quorum == AggregationSection.model_fields["quorum"].default:
        return
    needed = quorum * terms.cohort if quorum <= 1 else quorum
    if needed < terms.fewest - 1e-9:
        yield Problem("plan key aggregation.quorum", f"at least the {terms.fewest} answers of {terms.cohort} without which no "
                      "sum is opened", f"{quorum:g}", "Remove it: secure_sum.dropouts says how many may be missing")  # fmt: skip
