"""The card's lines, and those on the mechanism: where noise is drawn, what is clipped, what is sampled."""

from collections.abc import Mapping
from dataclasses import dataclass

from consilia.core.spec import Unit
from consilia.plan.facts import Facts, StackFacts
from consilia.report.numbers import bound, plain
from consilia.report.numbers import share as percent
from consilia.report.phases import in_turn, moves, rounds_of
from consilia.report.stacking import stack_noise, stack_parts, stack_ridge

_PLACEMENT: Mapping[str, str] = {
    "site": "at each site, before anything leaves it",
    "server": "at the coordinator, after the sum: sites trust it",
    "distributed": "as a share at each site, under a secure sum",
}
_NOISE: Mapping[str, str] = {
    "site": "Gaussian; standard deviation over clip norm",
    "server": "Gaussian; standard deviation over the largest bounded contribution",
    "distributed": "discrete Gaussian; standard deviation of the shares that carry it over the largest bounded contribution, "
    "rounded",
}
_CLIPPING: Mapping[str, str] = {
    "flat": "bound on the l2 norm of {whose}",
    "per-layer": "bound on the l2 norm of {whose}, shared out evenly over the layers",
    "automatic": "l2 norm that {whose} is scaled to, or a little below",
    "adaptive": "bound on the l2 norm of {whose} at the start; it follows a quantile of the norms, whose noise is charged",
}


@dataclass(frozen=True)
class Row:
    """One line of the card."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Group:
    """Lines that belong together."""

    title: str
    rows: tuple[Row, ...]


def mechanism(facts: Facts) -> Group:
    """Return the lines on noise, clipping, views, sampling, phases and turns."""
    if facts["unit"] == "none":
        return Group("Mechanism", (Row("Noise", "none"), Row("Clipping", "none"), _sampling(facts), _turns(facts)))
    if facts["stack"] is not None:
        return Group("Mechanism", (*_stack(facts["stack"]), *_start(facts), _turns(facts)))
    inside = Unit(facts["unit"]).within_site
    whose = f"one {facts['unit']}'s gradient" if inside else "a site's update"
    rows = [
        Row("Placement of noise", facts["noise"], _PLACEMENT[facts["noise"]]),
        Row("Noise multiplier", in_turn(facts, "noise_multiplier"),
            _NOISE[facts["noise"]]),
        Row("Clip norm", in_turn(facts, "clip_norm"), _CLIPPING[facts["clipping"]].format(whose=whose)),
    ]  # fmt: skip
    if facts["control_clip_norm"] is not None:
        rows.append(Row("Clip norm of controls", plain(facts["control_clip_norm"]), "SCAFFOLD's control variates"))
    if facts["clipping"] == "adaptive":
        rows.append(Row("Count within the clip norm", "noised at each site, in every step",
                        "moves the clip norm and leaves no site by itself; the noise multiplier pays for it, so gradients get a "
                        "little more noise"))  # fmt: skip
    if facts["views"]:
        note = "of each row and step; their mean gradient is clipped, so they cost no privacy"
        rows.append(Row("Views", plain(facts["views"]), note if inside else "of each row and step"))
    rows += [*_start(facts), _sampling(facts), *_caps(facts), *_phases(facts), _turns(facts)]
    return Group("Mechanism", tuple(rows))


def _stack(stack: StackFacts) -> tuple[Row, ...]:
    return (
        Row("Stack", stack["parts"], stack_parts(stack)),
        Row("Placement of noise", "site", _PLACEMENT["site"]),
        Row("Noise", stack["noise"], stack_noise(stack)),
        Row("Ridge", plain(stack["ridge"]), stack_ridge(stack)),
    )


def _start(facts: Facts) -> tuple[Row, ...]:
    if facts["initial_source"] is None:
        return ()
    return (
        Row(
            "Starts from",
            facts["initial_source"],
            "data of the first weights: nothing in this run protects it",
        ),
    )


def _sampling(facts: Facts) -> Row:
    if facts["batch"] == "poisson":
        claims = Unit(facts["unit"]).within_site and facts["epsilon"] is not None
        gain = "amplification is claimed for this alone" if claims else "no amplification is claimed"
        rate = in_turn(facts, "sampling_rate")
        return Row(f"Sampling of {units(facts)}", f"Poisson, rate {rate}, drawn secretly at each site", gain)
    kind = (
        f"every {units(facts)[:-1]} in every step" if facts["batch"] == "full" else "fixed batches of a shuffled order"
    )
    return Row(f"Sampling of {units(facts)}", "none", f"{kind}; no amplification is claimed")


def units(facts: Facts) -> str:
    """Return what is drawn and counted: "records" or "patients"."""
    return "patients" if facts["unit"] == "patient" else "records"


def _phases(facts: Facts) -> tuple[Row, ...]:
    if len(facts["phases"]) == 1:
        return ()
    shown = "; ".join(f"{rounds_of(phase)}: {moves(phase)}" for phase in facts["phases"])
    budget = "; one budget covers all of them" if facts["epsilon"] is not None else ""
    return (Row("Phases", plain(len(facts["phases"])), f"{shown}{budget}"),)


def _caps(facts: Facts) -> tuple[Row, ...]:
    if facts["batch"] != "poisson" or not Unit(facts["unit"]).within_site:
        return ()
    caps = sorted({phase["batch_cap"] for site in facts["sites"] for phase in site["phases"]})
    value = plain(caps[0]) if len(caps) == 1 else f"{plain(caps[0])} to {plain(caps[-1])}"
    extra = max((site["extra_delta"] for site in facts["sites"]), default=0.0)
    delta = facts["delta"]
    part = percent(extra / delta) if extra and delta and extra >= 1e-3 * delta else "less than 0.1 %"
    note = f"at most {bound(extra, 2)}, {part} of delta" if extra else "no part of delta"
    return (Row("Batch cap", f"{value} {units(facts)}", f"an excess is dropped by secret order; its share: {note}"),)


def _turns(facts: Facts) -> Row:
    turns = sorted({site["participations"] for site in facts["sites"]})
    value = f"at most {plain(turns[-1])} of {plain(facts['rounds'])} rounds" if turns else "none"
    note = "by the public schedule; client sampling is not counted as amplification"
    if facts.get("asynchronous") is not None:
        value = f"at most {plain(turns[-1])} updates begun" if turns else "none"
        note = "its ledger refuses one more; who is ready when is known, and not counted as amplification"
    return Row("Participations of a site", value, note)
