"""A session of secure aggregation from real vectors to their weighted mean: what is added to `Play` is timed with it."""

import secrets

import numpy as np
from numpy.typing import NDArray

from benchmarks.timing.secagg import Play, Setting
from consilia.core.randomness import SecretRng, SharedSeed
from consilia.pipeline.chain import Chain
from consilia.pipeline.grid import Cut, Grid, Weigh
from consilia.pipeline.transform import SiteContext, SumContext
from consilia.secagg import server
from consilia.secagg.state import Contribution

SHARED = SharedSeed.of(1)


class Weighted(Play):
    """One session, timed, of the mean of vectors with weights; all sites that stay are watched.

    Attributes:
        mean: What came out, shape (d,), float64.
    """

    def __init__(
        self, setting: Setting, vectors: NDArray[np.float32], weights: NDArray[np.int64], *, cut: float, scale: float
    ) -> None:
        super().__init__(setting)
        self.vectors = dict(zip(self.session.cohort, vectors, strict=True))
        self.weights = dict(zip(self.session.cohort, weights.tolist(), strict=True))
        self.chain = Chain((Weigh(), Cut(cut), Grid(scale, self.session.ring)), setting.dim)
        self.heaviest, self.sum = max(self.weights.values()), np.zeros(setting.dim, np.int64)
        self.mean = np.zeros(setting.dim)

    def contribution(self, site: str) -> Contribution:
        """Return a site's vector as words, weighed, cut and rounded."""
        with self.timed(site, "encode"):
            context = SiteContext(SecretRng(secrets.token_bytes(32)), SHARED, self.weights[site] / self.heaviest)
            integers = self.chain.encode(self.vectors[site], context)
            words = self.session.ring.lift(integers)
        if site not in self.silent:
            self.sum += integers
        return Contribution(words)

    def opened(self, done: server.Done) -> None:
        """Check the sum, to the last bit, and take the mean of it."""
        with self.timed("server", "decode"):
            total = self.session.ring.center(done.total)
            mean = self.chain.decode(total, SumContext(SecretRng(bytes(32)), SHARED))
            self.mean = mean * (self.heaviest / sum(self.weights[site] for site in done.survivors))
        if not np.array_equal(total, self.sum):
            raise SystemExit("secure aggregation: the sum is not exact")
