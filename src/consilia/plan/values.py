"""Kinds of values in a plan, and what every section has in common."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from consilia.dp import ranges

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=ranges.SAMPLING_RATE.low, le=1)]
Multiplier = Annotated[float, Field(ge=ranges.NOISE_MULTIPLIER.low, le=ranges.NOISE_MULTIPLIER.high)]
Norm = Annotated[float, Field(ge=ranges.CLIP_NORM.low, le=ranges.CLIP_NORM.high)]
Target = Annotated[float, Field(ge=ranges.EPSILON.low, le=ranges.EPSILON.high)]
Strength = Annotated[float, Field(gt=0, le=ranges.STRENGTH.high)]
Penalty = Annotated[float, Field(ge=0, le=ranges.STRENGTH.high)]
Count = Annotated[int, Field(ge=1, le=10**12)]
MOST_ROUNDS = 10**7  # of a run: its schedule is held in memory
Rounds = Annotated[int, Field(ge=1, le=MOST_ROUNDS)]
Name = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9 _.-]*$")]


class Section(BaseModel):
    """A section: unknown keys are errors, values are frozen and finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
