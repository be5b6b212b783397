"""Renyi differential privacy of a sum of discrete Gaussian shares, at integer orders.

A sum of discrete Gaussians is not quite a discrete Gaussian; tau below bounds the difference. From a share's standard
deviation of 4 grid steps on it is below 1e-60, and what is left is the RDP of a Gaussian of the same noise multiplier.
"""

import math

import numpy as np
from numpy.typing import NDArray

from consilia.dp.discrete_event import DiscreteGaussianEvent

Vector64 = NDArray[np.float64]


def tau(share_variance: int, shares: int) -> float:
    """Return twice the bound on the log ratio of the sum's law to the discrete Gaussian of the same variance.

    Source:
        Kairouz, Liu and Steinke (2021), The distributed discrete Gaussian mechanism, theorem 1 (needs sigma >= 1/2).
    """
    k = np.arange(1.0, shares)
    with np.errstate(under="ignore"):
        return 10.0 * float(np.exp(-2.0 * math.pi**2 * float(share_variance) * (k / (k + 1.0))).sum())


def unsampled_rdp(event: DiscreteGaussianEvent, orders: Vector64) -> Vector64:
    """Return the RDP of one release without sampling at integer orders of at least 2, shape (orders,).

    Guarantees:
        For every integer order a and every integer shift of l2 norm at most `l2`, the Renyi divergence of order a between
        the summed noise with and without the shift, either way round, is at most the value returned. Proof:
        docs/guarantees-distributed.md, section 3.

    Source:
        Kairouz, Liu and Steinke (2021), theorem 1 and proposition 14. The l1 norm of an integer vector of l2 norm D is at
        most min(sqrt(d) D, D^2).
    """
    if event.l2 == 0:
        return np.zeros_like(orders)
    own, root, close = 1.0 / event.ratio, math.sqrt(event.dim), tau(event.share_variance, event.shares)
    absolute = own * min(root, event.l2)
    square = min(own**2 + 2 * absolute * close + close**2 * event.dim, (own + root * close) ** 2)
    return np.asarray(np.minimum(orders / 2 * own**2 + close * event.dim, orders / 2 * square), dtype=np.float64)
