"""Which rows a local step sees."""

from collections.abc import Iterator

import numpy as np

from consilia.core.randomness import SecretRng
from consilia.data.table import Index


def poisson_batch(count: int, q: float, cap: int, rng: SecretRng) -> Index:
    """Draw a batch that each row joins with probability `q`, independently and secretly; may be empty.

    Args:
        count: Rows at the site.
        q: Sampling rate, in (0, 1]; a public number.
        cap: Largest batch. Where more rows join, those first in a fresh secret order stay and the others are
            dropped.
        rng: The site's secret stream.

    Returns:
        Distinct positions in range(count), in the secret order, shape (b,) with b <= cap.

    Guarantees:
        Before the cap, every row's membership is one draw of its own, so the batch is a Poisson sample at
        rate `q` (up to the 2**-53 grid of the uniforms). The cap makes it differ from one with the
        probability that more than `cap` rows join; that probability is charged by `dp.truncation`, and its
        proof needs the order to be uniform and independent of the rows.
    """
    joined = np.flatnonzero(rng.uniform(count) < q)
    return joined[rng.permutation(len(joined))][:cap].astype(np.int64)


def fixed_batches(count: int, size: int, generator: np.random.Generator) -> Iterator[Index]:
    """Yield batches of `size` rows of a fresh random order: every row once, the last batch may be smaller.

    These batches are no Poisson sample: no amplification may be claimed for them.
    """
    order = generator.permutation(count).astype(np.int64)
    for start in range(0, count, size):
        yield order[start : start + size]
