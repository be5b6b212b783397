"""What an update counts for when the model has moved on since its site began."""

import math


def staleness_weight(steps: int) -> float:
    """Return 1/sqrt(1 + tau), in (0, 1].

    Args:
        steps: tau, the steps that the model has made since, at least 0.

    Source:
        Nguyen et al. (2022), Federated learning with buffered asynchronous aggregation, section 5; the polynomial rule of Xie
        et al. (2019), Asynchronous federated optimization, with a = 1/2.
    """
    return 1.0 / math.sqrt(1 + steps)
