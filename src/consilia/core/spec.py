"""What is known about an update before any data is read: its shape, its bounds, who can see it.

Transforms map one `UpdateSpec` to the next or refuse (`IllegalChain`); legality of a whole pipeline follows from that.
"""

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from consilia.core.errors import PlanError
from consilia.core.ring import Ring


class Unit(StrEnum):
    """What a neighbouring data set differs in: one record, one patient, one site, or nothing is protected."""

    NONE = "none"
    RECORD = "record"
    PATIENT = "patient"
    SITE = "site"

    @property
    def within_site(self) -> bool:
        """True if a site holds many such units, so that each is clipped on its own while training."""
        return self in (Unit.RECORD, Unit.PATIENT)


class Adjacency(StrEnum):
    """How neighbouring data sets differ in that one unit."""

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"
    ZERO_OUT = "zero-out"


class Encoding(StrEnum):
    """What the numbers of an update are: real, or integers modulo a power of two."""

    REAL = "real"
    RING = "ring"


class Visibility(StrEnum):
    """What the coordinator sees of updates: each site's, a group's sum, or only the whole sum."""

    SITE = "site"
    GROUP = "group"
    SUM = "sum"


@dataclass(frozen=True)
class Segment:
    """A named, contiguous part of the update vector: one tensor of the model."""

    name: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class UpdateSpec:
    """The contract of an update at one point of the pipeline.

    Attributes:
        segments: The named parts, in order; their sizes add up to `dim`.
        unit: The unit of privacy of the run.
        sites: The largest number of sites whose updates are added in one round.
        l2_bound: Bound on how far one unit can move this site's vector (l2), or None where nothing bounds it.
        range_linf: Bound on any single coordinate, or None. Not a sensitivity: a sum of clipped gradients has
            sensitivity C and range batch x C.
        noised: True once noise that carries the guarantee has been added.
        visibility: What the coordinator can see.
        encoding: Real numbers, or integers in a ring; then bounds are in units of its grid.
        shared_support: True while every site sends the same coordinates; masks and noise need that.
        kept: Length of the vector once only that many of the `dim` coordinates go on, the same at every site; None for all.
        scale: Grid steps per unit where values are integers, else None.
        ring: The ring that sums are taken in where values are integers, else None.
        weighted: True once the site's weight is inside the vector, so that sums are plain.
    """

    segments: tuple[Segment, ...]
    unit: Unit = Unit.NONE
    sites: int = 1
    l2_bound: float | None = None
    range_linf: float | None = None
    noised: bool = False
    visibility: Visibility = Visibility.SITE
    encoding: Encoding = Encoding.REAL
    shared_support: bool = True
    kept: int | None = None
    scale: float | None = None
    ring: Ring | None = None
    weighted: bool = False

    @property
    def dim(self) -> int:
        """Number of coordinates of the model's update, d."""
        return sum(segment.size for segment in self.segments)

    @property
    def sent(self) -> int:
        """Length of the vector at this point: `kept` of the d coordinates, or d."""
        return self.dim if self.kept is None else self.kept

    def sensitivity(self, unit: Unit) -> float:
        """Return the l2 sensitivity of one site's vector to one unit.

        Raises:
            PlanError: If no transform has bounded it, or the bound is for another unit.
        """
        if self.l2_bound is None or unit is not self.unit:
            raise PlanError.of(
                "the privacy claim",
                needs=f"an update whose sensitivity to one {unit} is bounded",
                got=f"{'no bound' if self.l2_bound is None else f'a bound per {self.unit}'}",
                hint="Clip before adding noise",
            )
        return self.l2_bound

    def with_(self, **changes: object) -> "UpdateSpec":
        """Return a copy with some fields replaced."""
        return replace(self, **changes)  # type: ignore[arg-type]
