"""Numbers from the command line: every one that is out of range is named at once, by its option."""

from consilia.core.errors import PlanError, Problem
from consilia.dp import ranges


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

    def need(known: ranges.Range, option: str, what: str, got: float, hint: str) -> None:
        if got not in known:
            problems.append(Problem(f"option --{option}", f"{what} {known}", _short(got), hint))

    need(ranges.SAMPLING_RATE, "sampling-rate", "a number", sampling_rate,
         "It is the chance of a record to join a step, such as 0.01")  # fmt: skip
    need(ranges.STEPS, "steps", "a whole number", steps, "Count every noisy step of the whole run")
    if delta == 1 or delta not in ranges.DELTA:
        problems.append(Problem("option --delta", f"a number between 0 and 1, at least {ranges.DELTA.low:g}", _short(delta),
                                "Usual is 1e-5, and at most 0.1 over the count"))  # fmt: skip
    if noise_multiplier is not None:
        need(ranges.NOISE_MULTIPLIER, "noise-multiplier", "a number", noise_multiplier,
             "It is the noise's standard deviation over the clip norm, such as 1.1")  # fmt: skip
    if epsilon is not None:
        need(ranges.EPSILON, "epsilon", "a number", epsilon, "Usual is 1 to 10")
    if problems:
        raise PlanError(problems)


def _short(number: float) -> str:
    if isinstance(number, int):
        digits = len(f"{number:x}")  # in hexadecimal: Python refuses to write thousands of decimal digits
        return f"{number}" if digits < 20 else "a number of dozens of digits"
    return f"{number:g}"
