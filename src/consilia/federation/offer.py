"""What a coordinator proposes to a site before a run, and how both ends write it down."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from consilia.core.canonical import Json
from consilia.core.errors import PlanError, ProtocolError
from consilia.core.version import VERSION
from consilia.federation.assemble import RowShape
from consilia.plan.load import canonical, from_json
from consilia.plan.schema import Plan

RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")  # a run's id names its folder


@dataclass(frozen=True)
class Offer:
    """A run as it is proposed.

    Attributes:
        run: Id of the run.
        plan: The plan, as it travels.
        counts: Every site's registered number of rows or patients (public).
        digest: Of the checked plan; "" in a survey, which comes before the numbers are known.
        version: Of the coordinator's software.
    """

    run: str
    plan: Plan
    counts: Mapping[str, int]
    digest: str
    version: str = VERSION

    def body(self) -> dict[str, Json]:
        """Return the plain values that `read` takes."""
        return {
            "run": self.run, "plan": canonical(self.plan), "counts": dict(self.counts), "digest": self.digest,
            "version": self.version,
        }  # fmt: skip

    @classmethod
    def read(cls, body: Mapping[str, Json], *, who: str) -> "Offer":
        """Read what a peer, or an earlier process, wrote.

        Raises:
            ProtocolError: If it is no offer, with what is wrong with its plan.
        """
        counts: Any = body.get("counts")
        texts: list[Any] = [body.get(key) for key in ("run", "digest", "version")]
        if not all(isinstance(text, str) and len(text) <= 128 for text in texts) or not RUN.fullmatch(texts[0]):
            raise _malformed(who, "another run, digest or version")
        if not isinstance(counts, dict) or not all(_is_count(count) for count in counts.values()):
            raise _malformed(who, "counts that are none")
        try:
            plan = from_json(body.get("plan"))
        except PlanError as error:
            raise ProtocolError(error.problems) from None
        return cls(texts[0], plan, counts, texts[1], texts[2])


@dataclass(frozen=True)
class Surveyed:
    """What a site says of its rows before a run: their shape, which the plan fixes, and a number that it declared public.

    Attributes:
        shape: Of its rows.
        count: Training rows, or patients where they are the unit; None where the plan registers a number.
    """

    shape: RowShape
    count: int | None

    def body(self) -> dict[str, Json]:
        """Return the plain values that `read` takes."""
        return {"input_shape": list(self.shape.input_shape), "classes": self.shape.classes, "count": self.count}

    @classmethod
    def read(cls, body: Mapping[str, Json], *, who: str) -> "Surveyed":
        """Read what a site answered.

        Raises:
            ProtocolError: If it is none.
        """
        sizes, classes, count = body.get("input_shape"), body.get("classes"), body.get("count")
        if not isinstance(sizes, list) or not 0 < len(sizes) <= 4 or not all(_is_count(size) for size in sizes):
            raise _malformed(who, "a shape that is none")
        if not isinstance(classes, int) or not _is_count(classes) or not (count is None or _is_count(count)):
            raise _malformed(who, "numbers that are none")
        return cls(RowShape(tuple(int(size) for size in sizes), classes), count)  # type: ignore[arg-type]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 10**12


def _malformed(who: str, got: str) -> ProtocolError:
    return ProtocolError.of(who, needs="an offer or a survey of this version", got=got,
                            hint="Both ends must run compatible versions")  # fmt: skip
