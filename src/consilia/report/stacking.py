"""What a stack's release is, in words."""

from consilia.plan.facts import StackFacts
from consilia.report.numbers import plain

_PARTS = {
    "one": "one logistic regression on all rows and columns",
    "samples": "{count} logistic regressions on parts of the rows, and one on their scores",
    "features": "{count} logistic regressions on blocks of columns, and one on their scores; disjoint rows for the two levels",
}


def stack_parts(stack: StackFacts) -> str:
    """Return what a site trains."""
    return _PARTS[stack["parts"]].format(count=stack["count"])


def stack_noise(stack: StackFacts) -> str:
    """Return how its noise is drawn."""
    return f"in each objective, for rows scaled to norm {plain(stack['row_bound'])}"


def stack_ridge(stack: StackFacts) -> str:
    """Return how strongly weights are held back."""
    pulled = f"; drawn to the model received with {plain(stack['pull'])} times that" if stack["pull"] else ""
    return f"times the least that costs no noise{pulled}"
