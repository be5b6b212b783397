"""Numbers from the command line: every one that is out of range is named at once, by its option."""

import math

from consilia.core.errors import PlanError, Problem


def require(
    *,
    delta: float,
    sampling_rate: float,
    steps: int,
    noise_multiplier: float | None = None,
    epsilon: float | None = None,
) -> None:
    """Check the numbers of `account` and `calibrate`.

    Raises:
        PlanError: With every number that is out of range.
    """
    problems = []

    def need(holds: bool, option: str, what: str, got: float, hint: str) -> None:
        if not holds:
            problems.append(Problem(f"option --{option}", what, f"{got:g}", hint))

    need(0 < sampling_rate <= 1, "sampling-rate", "a number above 0 and at most 1", sampling_rate,
         "It is the chance of a record to join a step, such as 0.01")  # fmt: skip
    need(steps >= 1, "steps", "a whole number of at least 1", steps, "Count every noisy step of the whole run")
    need(0 < delta < 1, "delta", "a number between 0 and 1", delta, "Usual is 1e-5, and at most 0.1 over the count")
    if noise_multiplier is not None:
        need(0 < noise_multiplier < math.inf, "noise-multiplier", "a finite number above 0", noise_multiplier,
             "It is the noise's standard deviation over the clip norm, such as 1.1")  # fmt: skip
    if epsilon is not None:
        need(0 < epsilon < math.inf, "epsilon", "a finite number above 0", epsilon, "Usual is 1 to 10")
    if problems:
        raise PlanError(problems)
