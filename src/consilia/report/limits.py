"""What a run's claim does not cover, in plain sentences. Each is there because somebody would otherwise assume it."""

from consilia.plan.facts import Facts


def not_covered(facts: Facts) -> tuple[str, ...]:
    """Return the sentences that hold for this run."""
    if facts["unit"] == "none" or facts["reproducible"]:
        points = ["Anything: no bound is claimed on what a record, a patient or a site leaks."]
    else:
        points = [*_units(facts), *_choices(facts), *_numbers(facts)]
    return tuple(points + _always(facts))


def _units(facts: Facts) -> list[str]:
    points = []
    if facts["unit"] == "record":
        points.append(
            "A patient with several records at a site: the bound is for one record. For k records epsilon is k times as "
            "large, and delta more than that."
        )
        points.append(
            "A patient at two sites: each site's bound is its own, so the two epsilons and the two deltas add up."
        )
    else:
        points.append(
            "A patient at two sites: the bound is for one site's whole contribution; for two of them it adds up."
        )
    if facts["noise"] == "server":
        points.append("The coordinator itself: it adds the noise and sees the sum without it. Sites trust it here.")
    points.append(
        "What the population teaches: a model may show that smoking goes with disease, and so say something about a smoker "
        "who never was in the data."
    )
    return points


def _choices(facts: Facts) -> list[str]:
    points = [
        "The choice of hyper-parameters: trying plans on the same rows is charged to the ledgers run by run, but is not in "
        "this run's epsilon.",
        "Which rows are held out: the split is public, by the plan's rule and seed.",
    ]
    if facts["metrics"] == "public":
        points.append(
            "Held-out rows: their metrics were declared public by their holders, so nothing protects those rows."
        )
    points.append(
        "Registered counts, classes, column names and ranges of the preprocessing: public numbers of the plan."
    )
    return points


def _numbers(facts: Facts) -> list[str]:
    points = [
        "Floating point: the noise is a Gaussian in 64-bit arithmetic rounded to 32 bits, where the theorem speaks of real "
        "numbers. The gap is known and not closed.",
        "Timing and sizes of memory at a site: how long a step takes is not hidden.",
    ]
    if facts["batch"] == "poisson" and facts["unit"] == "record":
        points.append(
            "More rows than registered: batch caps and normalisers hold up to the registered count of each site."
        )
    return points


def _always(facts: Facts) -> list[str]:
    return [
        "The fact of taking part: which site was asked and answered in which round, and when, is known to the coordinator.",
        "Poisoning: a site that lies can spoil the model. Averages do not stop it.",
        "Separate machines: all sites ran in one process here, exchanging bytes; a firewall between them was not tested.",
        "A ledger's disk that was rolled back: compare its head with the one on this card (`consilia ledger verify`).",
    ]
