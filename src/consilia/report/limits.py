"""What a run's claim does not cover, in plain sentences. Each is there because somebody would otherwise assume it."""

from consilia.plan.facts import Facts
from consilia.report.secure import secure_limits


def not_covered(facts: Facts) -> tuple[str, ...]:
    """Return the sentences that hold for this run, each as "topic: what is not covered"."""
    if facts["unit"] == "none" or facts["epsilon"] is None:
        points = ["Anything: no bound is claimed on what a record, a patient or a site leaks."]
    else:
        points = [*_units(facts), *_choices(facts), *_means(facts)]
    return tuple(points + secure_limits(facts) + _always(facts))


def _units(facts: Facts) -> list[str]:
    points = []
    if facts["unit"] == "record":
        points += [
            "A patient with several records at a site: the bound is for one record. For k records epsilon is k times "
            "as large, and delta more than that.",
            "A patient at two sites: each site's bound is its own, so the two epsilons and the two deltas add up.",
        ]
    elif facts["unit"] == "patient":
        points.append(
            "A patient at two sites: each site's bound is its own, so the two epsilons and the two deltas add up."
        )
    else:
        points.append("A patient at two sites: the bound is for one site's contribution; for two of them it adds up.")
    if facts["noise"] == "server":
        points.append("The coordinator itself: it adds the noise and sees the sum without it. Sites trust it here.")
    if facts["noise"] == "distributed":
        points.append(_pools(facts))
    points.append(
        "What the population teaches: a model may show that smoking goes with disease, and so say something about a "
        "smoker who never was in the data."
    )
    return points


def _pools(facts: Facts) -> str:
    many = facts["secure"]["colluders"] if facts["secure"] is not None else 0
    some = f"more than {many} sites" if many else "a site"
    return (
        f"A coordinator that knows what {some} know: whoever knows shares of the noise can subtract them, and what is left is "
        "less than epsilon counts on."
    )


def _choices(facts: Facts) -> list[str]:
    points = [
        "The choice of hyper-parameters: earlier runs on the same rows are not in this run's epsilon. The ledgers add up "
        "the private ones; runs without noise are in no ledger.",
        "Which rows are held out: the split is public, by the plan's rule and seed.",
        "Registered counts, classes, column names and ranges of the preprocessing: public numbers of the plan.",
    ]
    if facts["initial_source"] is not None:
        points.append(
            f"The data that the first weights were trained on ({facts['initial_source']}): nothing protects them here."
        )
    if facts["metrics"] == "public":
        points.append(
            "Held-out rows: their metrics were declared public by their holders; nothing protects those rows."
        )
    return points


def _means(facts: Facts) -> list[str]:
    exact = facts["noise"] == "distributed"
    return [
        "Floating point: gradients are clipped and added in floating point before they become integers, which may move a sum "
        "by a little more than the clip norm. The noise and the sum over sites are exact."
        if exact
        else "Floating point: the noise is a Gaussian in 64-bit arithmetic, rounded to 32 bits where it is sent; the theorem "
        "speaks of real numbers. The gap is known and not closed.",
        "Side channels: how long a step takes and how much memory it needs is not hidden.",
    ]


def _always(facts: Facts) -> list[str]:
    points = [
        "The fact of taking part: which site was asked and answered in which round, and when, is known to the coordinator.",
        "Poisoning: a site that lies can spoil the model. An average does not stop it"
        + (", and under a secure sum nobody can look at a single update." if facts["secure"] is not None else "."),
        "Separate machines: all sites ran in one process here and exchanged bytes; no firewall stood between them.",
    ]
    if facts["unit"] != "none":
        points.append(
            "A ledger's disk that was rolled back: compare its head with the one on this card "
            "(consilia ledger verify --site NAME --head HASH)."
        )
    return points
