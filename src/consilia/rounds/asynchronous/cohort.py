"""Who is in a round's sum where rounds wait for no one, and how old each one's update is."""

from collections.abc import Mapping
from dataclasses import dataclass

from consilia.core.canonical import Json


@dataclass(frozen=True)
class Cohort:
    """The sites whose waiting updates a round adds.

    Attributes:
        round: The round.
        version: Steps that the model has made so far.
        began: site -> steps that the model had made when it began.
    """

    round: int
    version: int
    began: Mapping[str, int]

    @property
    def names(self) -> tuple[str, ...]:
        """The sites, in order of name."""
        return tuple(sorted(self.began))

    @property
    def staleness(self) -> dict[str, int]:
        """How many steps the model has left each site's update behind."""
        return {site: self.version - self.began[site] for site in self.names}

    @property
    def body(self) -> dict[str, Json]:
        """What every site's task says."""
        return {"version": self.version}

    @property
    def beside(self) -> dict[str, dict[str, Json]]:
        """What each site's own task says."""
        return {site: {"began": began} for site, began in self.began.items()}
