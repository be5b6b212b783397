"""What the phases of a run do, in words."""

from typing import Literal

from consilia.plan.facts import Facts, PhaseFacts

_MOVES = {"all": "every layer", "head": "the last layer", "backbone": "every layer but the last"}


def in_turn(facts: Facts, key: Literal["noise_multiplier", "clip_norm", "sampling_rate"]) -> str:
    """Return the values that a setting takes, in the order of the phases: "1.1" or "1.1, then 0.8"."""
    shown: list[str] = []
    for phase in facts["phases"]:
        value = phase[key]
        text = "none" if value is None else f"{value:.5g}"
        if shown[-1:] != [text]:
            shown.append(text)
    return ", then ".join(shown)


def rounds_of(phase: PhaseFacts) -> str:
    """Return "rounds 3 to 9", or "round 3"."""
    first, last = phase["first"], phase["last"]
    return f"rounds {first} to {last}" if last > first else f"round {first}"


def moves(phase: PhaseFacts) -> str:
    """Return which layers a phase trains."""
    return _MOVES[phase["train"]]


def without_noise(facts: Facts) -> str:
    """Return the rounds that clip and add no noise, as text; empty where every round of a private run is noised."""
    return ", ".join(rounds_of(phase) for phase in facts["phases"] if phase["noise_multiplier"] == 0)
