"""What leaves a site, line by line: in clear, noised, hidden, or inside a sum."""

from collections.abc import Mapping

from consilia.plan.facts import Facts
from consilia.report.mechanism import Group, Row
from consilia.report.numbers import HIDDEN, HIDDEN_BY_SUM, plain
from consilia.report.phases import without_noise
from consilia.report.secure import shape

_METRICS: Mapping[str, str] = {
    "public": "accuracy, loss and number of held-out rows of {whose}, declared public by their holders",
    "charged": "counts of right and wrong held-out rows of {whose}, with noise",
    "hidden": "no metric of held-out rows",
}
_OF_ALL = "all sites together"


def leaves(facts: Facts) -> Group:
    """Return the card's lines on what leaves a site, and in which form."""
    counted_units = "patients" if facts["unit"] == "patient" else "rows"
    summed = facts["secure"] is not None
    fit = "declared public" if facts["metrics"] == "public" else facts["metrics"]
    metrics = _METRICS[facts["metrics"]].format(whose=_OF_ALL if summed else "each site")
    if facts["metrics"] == "charged" and facts["epsilon"] is not None:
        metrics += " that epsilon includes"
    if summed and facts["metrics"] != "hidden":
        metrics += f"; a single site's are {HIDDEN_BY_SUM}"
    update, norms = _updates(facts)
    return Group(
        "What leaves a site",
        (
            Row("Updates", update, _size(facts)),
            Row("Metrics", fit, metrics),
            _loss(facts),
            Row("Norms and directions", norms, "each site sees its own" if summed else "computed by the coordinator"),
            Row(
                "Registered counts",
                "public",
                f"upper bounds on training {counted_units}; weights are computed from them",
            ),
            Row("Errors", "class of an error only", "never its text, never a row"),
            *_readiness(facts),
        ),
    )


def _readiness(facts: Facts) -> tuple[Row, ...]:
    found = facts.get("asynchronous")
    if found is None or found["mode"] != "two-phase":
        return ()
    return (
        Row(
            "Readiness",
            "that an update waits, and of which model",
            "the update stays at the site until a round takes it",
        ),
    )


def _size(facts: Facts) -> str:
    messages, numbers = facts["messages"], f"{plain(facts['parameters'])} numbers a round"
    if messages["random_k"] is not None:
        numbers = f"{plain(messages['kept'])} of {numbers}, the same at every site and drawn afresh"
    elif messages["top_k"] is not None:
        numbers = f"the {plain(messages['kept'])} largest of {numbers}, which differ from site to site"
    bits = messages["quantize_bits"]
    return numbers + (f"; rounded at random to {bits} bits" if bits is not None else "")


def _loss(facts: Facts) -> Row:
    if facts["unit"] != "none":
        return Row("Training loss", HIDDEN if facts["secure"] is None else HIDDEN_BY_SUM)
    if facts["secure"] is None:
        return Row("Training loss", "in clear")
    return Row("Training loss", "the mean over sites", f"a single site's is {HIDDEN_BY_SUM}")


def _updates(facts: Facts) -> tuple[str, str]:
    """Return what a site's update is when it leaves, and what becomes of the norms and directions of updates."""
    free = "of noised updates: they cost nothing more"
    secure, quiet = facts["secure"], without_noise(facts)
    if secure is not None:
        return f"each site's {_summed(facts, quiet)}, {shape(secure)}: only sums are opened", HIDDEN_BY_SUM
    if facts["unit"] == "none":
        return "each site's update, in clear", "in clear"
    if facts["noise"] == "server":
        return "each site's clipped update, without noise", HIDDEN
    if facts["stack"] is not None:
        return "each site's stack, private by itself", free
    if quiet:
        return f"each site's update, clipped, and noised except in {quiet}", "in clear"
    return "each site's update, clipped and noised", free


def _summed(facts: Facts, quiet: str) -> str:
    if facts["unit"] == "none":
        return "update without noise"
    if facts["noise"] == "server":
        return "clipped update without noise"
    what = (
        "clipped update with a share of the noise" if facts["noise"] == "distributed" else "clipped and noised update"
    )
    return what + (f" (none in {quiet})" if quiet else "")
