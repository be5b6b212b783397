"""The plan's sections on what the coordinator may see of single sites, and on how small their messages are."""

from typing import Annotated, Literal

from pydantic import Field

from consilia.dp import ranges
from consilia.plan.values import Section

Fraction = Annotated[float, Field(gt=0, lt=1)]


class SecureSumSection(Section):
    """What lets the coordinator learn the sum of the sites' updates and no single one."""

    mode: Literal["none", "masks", "rlwe", "paillier", "attested"] = Field(
        "none",
        description="masks: secure aggregation; rlwe: threshold encryption, no one holds the key; paillier: encryption, every "
        "site holds the key; attested: code at the coordinator that shows what it is.",
    )
    adversary: Literal["active", "passive"] = Field(
        "active",
        description="masks: what the coordinator may do: active: send anything; passive: follow the protocol. It sets how many "
        "sites must answer.",
    )
    dropouts: int = Field(
        0, ge=0, le=10**6, description="Sites of a round that may fail to answer; with fewer answers no sum is opened."
    )
    colluders: int = Field(
        0,
        ge=0,
        le=10**6,
        description="Sites that may pool what they know with the coordinator, without breaking the claim.",
    )
    range: Annotated[float, Field(ge=ranges.CLIP_NORM.low, le=ranges.CLIP_NORM.high)] = Field(
        4.0,
        description="Bound on each number where no clip norm bounds it; it is cut to that before it becomes an integer.",
    )
    value_bits: int = Field(20, ge=8, le=32, description="Resolution there: range is 2^(value_bits - 1) - 1 steps.")
    key_bits: Literal[2048, 3072, 4096] = Field(3072, description="paillier: length of the modulus.")
    policy: str | None = Field(
        None, description="attested: file that says which evidence a site accepts; relative to the plan file."
    )


class MessagesSection(Section):
    """How updates are made smaller before they leave a site; float32 when nothing is set."""

    quantize_bits: Annotated[int, Field(ge=2, le=8)] | None = Field(
        None, description="Bits a number, by stochastic rounding; under a secure sum it replaces value_bits."
    )
    random_k: Fraction | None = Field(
        None, description="Share of coordinates, the same at every site, drawn afresh each round from the public seed."
    )
    top_k: Fraction | None = Field(
        None,
        description="Share of coordinates, each site's own largest, with error feedback; without any claim or secure sum only.",
    )
