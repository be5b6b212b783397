"""The plan's section on privacy."""

from typing import Annotated, Literal

from pydantic import Field

from consilia.core.spec import Unit
from consilia.dp import ranges
from consilia.plan.values import Multiplier, Norm, Positive, Section, Strength, Target


class PrivacySection(Section):
    """What is protected, how much, where the noise is drawn and against whom the claim holds."""

    unit: Literal["none", "record", "patient", "site"] = Field(
        "none",
        description="What a neighbouring data set differs in; patient: all rows of a data.patient_column value at one site.",
    )
    noise: Literal["site", "server", "distributed"] = Field(
        "site", description="Where the noise is drawn; distributed: a share at each site, inside a secure sum."
    )
    against: Literal["server", "server+colluding-sites", "other-sites", "world"] | None = Field(
        None,
        description=(
            "The adversary `epsilon` is claimed against; when absent: server for noise at the site, world for noise at "
            "the server, and server with the tolerated colluders for distributed noise."
        ),
    )
    epsilon: Target | None = Field(
        None,
        description="Target for the whole run; the noise multiplier follows, or with one given the number of rounds.",
    )
    noise_multiplier: Multiplier | None = Field(
        None,
        description="Noise standard deviation over sensitivity; with epsilon as well the run ends before the round that "
        "would pass it.",
    )
    delta: Annotated[float, Field(ge=ranges.DELTA.low, lt=1)] | None = Field(
        None, description="Public; well below 1 over the smallest site's count."
    )
    delta_reason: str | None = Field(
        None, max_length=500, description="Why a larger delta is accepted; printed on the privacy card."
    )
    clip_norm: Norm | None = Field(
        None,
        description="C: l2 bound on a record's or patient's gradient, or a site's update; adaptive: where it starts.",
    )
    clipping: Literal["flat", "per-layer", "automatic", "adaptive"] = Field(
        "flat",
        description="record, patient: flat: scale down to C; per-layer: C / sqrt(layers) each; automatic: scale every "
        "gradient to about C; adaptive: C follows a quantile of the norms.",
    )
    target_quantile: float = Field(
        0.5, gt=0, lt=1, description="adaptive: share of gradients that C should leave whole."
    )
    clip_learning_rate: Strength = Field(0.2, description="adaptive: how fast C follows, on a log scale.")
    count_noise: Positive | None = Field(
        None,
        description="adaptive: standard deviation of the noise on the count of gradients within C; paid for by more noise on "
        "the gradients. Chosen so that they get at most 3 % more when absent.",
    )
    control_clip_norm: Norm | None = Field(
        None, description="site unit with scaffold: l2 bound on the control variate's change."
    )

    @property
    def within_site(self) -> bool:
        """True if each record or patient is protected: clipped on its own while a site trains."""
        return Unit(self.unit).within_site
