"""Which sums a site opens, and which site opens them."""

import hashlib
from collections.abc import Set
from dataclasses import dataclass

from consilia.crypto.paillier_public import malformed


@dataclass(frozen=True)
class Opening:
    """What a site is asked to open; the coordinator's to say, the site's to judge.

    Attributes:
        context: What the vectors are for, the one they were encrypted with: a hash of run, plan, round and purpose. The
            coordinator must have no part in it that it could choose twice: a site encrypts one update under one context.
        dim: Length of the vectors.
        cohort: Numbers of the sites that were asked, from the plan.
        contributors: Numbers of the sites whose vectors are in the sum.
        fewest: Least number of contributors, from the plan.
    """

    context: bytes
    dim: int
    cohort: tuple[int, ...]
    contributors: tuple[int, ...]
    fewest: int

    @property
    def opener(self) -> int:
        """The one site that opens the sum of this context.

        Two sites that opened sums of different sets would show the vectors they differ in. If the opener cannot be reached
        the sum stays closed, and the round is lost.
        """
        drawn = int.from_bytes(hashlib.sha256(b"consilia paillier opener" + self.context).digest(), "big")
        return sorted(self.cohort)[drawn % len(self.cohort)]

    def require_proper(self, site: int, answered: Set[bytes]) -> None:
        """Refuse what this site must not open.

        Raises:
            ProtocolError: If it is another site's turn, this one has answered for the context, or the contributors are too
                few, not distinct or not of the cohort.
        """
        found = set(self.contributors)
        proper = self.fewest <= len(found) == len(self.contributors) and found <= set(self.cohort)
        if not proper:
            raise malformed(
                "the contributors of a sum to open", f"{self.fewest} or more different ones of {self.cohort}",
                f"{self.contributors}",
            )  # fmt: skip
        if site != self.opener:
            raise malformed("a sum to open", f"site {self.opener}, whose turn it is", f"a question to site {site}")
        if self.context in answered:
            raise malformed("a sum to open", "a context that this site has not answered for", "one that it has")
