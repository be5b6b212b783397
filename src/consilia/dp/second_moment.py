"""What Gaussian noise adds to the running mean of squares that Adam divides by."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class SecondMomentNoise:
    """The noise's share of v <- beta v + (1 - beta) u^2, for v that starts at zero; all of it is public.

    Attributes:
        steps: Squares taken in so far.
        sum: Expected share of the noise in v: the same recursion over its variances.
        spread: Variance of that share, by the recursion with the weights squared; a square of N(0, s^2) varies by 2 s^4.
    """

    steps: int = 0
    sum: float = 0.0
    spread: float = 0.0

    def after(self, variance: float, beta: float) -> "SecondMomentNoise":
        """Return the share after one more square, of a coordinate whose noise has this variance."""
        weight = 1.0 - beta
        return SecondMomentNoise(
            self.steps + 1, beta * self.sum + weight * variance, beta**2 * self.spread + 2 * (weight * variance) ** 2
        )

    def corrected(self, beta: float) -> tuple[float, float, float]:
        """Return (weight, mean, floor): v / weight - mean estimates the squared gradient, and is raised to the floor.

        The floor is one standard error of what is taken off: a smaller rest is no evidence of a gradient, and dividing by it
        would turn noise into large steps. It shrinks as squares are averaged and is zero without noise.

        Source:
            Tang, Shpilevskiy and Lecuyer (2024), DP-AdamBC, algorithm 1: max(v_hat - Phi, gamma'). There gamma' is a constant
            to be tuned; here it follows from the noise.
        """
        weight = 1.0 - beta**self.steps
        return weight, self.sum / weight, math.sqrt(self.spread) / weight
