"""The plan's [stack] section: what each site trains where it answers once."""

from typing import Literal

from pydantic import Field

from consilia.plan.values import Count, Norm, Penalty, Positive, Section


class StackSection(Section):
    """A stack of private logistic regressions, which a site releases once."""

    parts: Literal["one", "samples", "features"] = Field(
        "one",
        description="one: a single model; samples, features: low-level models on parts of the rows or of the columns, and "
        "one on their scores.",
    )
    count: Count | None = Field(None, description="samples, features: low-level models.")
    row_bound: Norm = Field(
        1.0, description="s: l2 bound on a row's columns and a constant 1; longer rows are scaled down to it."
    )
    ridge: float = Field(
        3.0,
        ge=1,
        le=1e6,
        description="Ridge of each model, in units of s^2 / its epsilon; from 1 on it costs no noise.",
    )
    pull: Penalty = Field(
        0.0, description="Hypothesis transfer: weight that draws to the model received, in units of the ridge."
    )
    high_fraction: float = Field(
        0.25, gt=0, lt=1, description="samples, features: chance of a row to train the high level instead of the low."
    )
    importance: list[Positive] | None = Field(
        None, description="features: public weights by which the blocks share epsilon; equal when absent."
    )
    measured: float = Field(
        0.0, ge=0, lt=1, description="features: share of epsilon that pays for measuring the importance at the site."
    )
