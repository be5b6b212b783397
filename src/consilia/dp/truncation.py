"""A public cap on the size of a Poisson batch, and what dropping the excess costs in delta.

A Poisson batch has no largest size, memory has. A batch above the cap loses its excess by secret random order. That
changes the mechanism, so its cost is stated.
"""

import math

from scipy import stats

from consilia.core.errors import PlanError, Problem

# The default cap may spend this part of delta. exp(20) covers every epsilon that anybody would still call privacy.
_SHARE, _EPSILON = 1e-3, 20.0


def truncation_delta(count: int, sampling_rate: float, cap: int, steps: int, epsilon: float) -> float:
    """Return the delta to add because `steps` Poisson batches are cut at `cap` records.

    Args:
        count: Public upper bound n on the number of records: the guarantee is for data sets of at most n rows.
        sampling_rate: q of the Poisson sample.
        cap: Largest batch.
        steps: T, over the whole run.
        epsilon: Epsilon of the same run without a cap.

    Guarantees:
        If the run without a cap is (epsilon, delta)-differentially private under add-remove adjacency among data sets of
        at most n rows, the run with the cap is (epsilon, delta + value returned)-differentially private there.
        Proof: let M be the run without and M' the run with the cap, on a data set D of at most n rows, both drawing the
        same samples, orders and noise. They differ only if some batch exceeds the cap, which has probability at most
        t = T Pr[Bin(n, q) > cap]; so their total variation distance is at most t, for D and for its neighbour D'. Hence,
        for every event S: Pr[M'(D) in S] <= Pr[M(D) in S] + t <= exp(epsilon) Pr[M(D') in S] + delta + t
        <= exp(epsilon) (Pr[M'(D') in S] + t) + delta + t, which is delta + (1 + exp(epsilon)) t.
        The batches of one run are chosen without regard to what was released before, so the union bound holds for
        adaptive steps.
    """
    _require_meaning(count, sampling_rate, cap, steps)
    if cap >= count or steps == 0:
        return 0.0
    tail = steps * float(stats.binom.sf(cap, count, sampling_rate))
    if tail == 0:
        return 0.0
    # 1 + exp(epsilon) as a logarithm: epsilon may be large, the product is what counts. A delta above 1 says nothing.
    log_delta = math.log(tail) + max(epsilon, 0.0) + math.log1p(math.exp(-max(epsilon, 0.0)))
    return 1.0 if log_delta >= 0 else math.exp(log_delta)


def default_batch_cap(count: int, sampling_rate: float, steps: int, delta: float) -> int:
    """Return the smallest cap that spends at most a thousandth of delta at every epsilon up to 20.

    Never above `count`, where nothing is ever dropped, and at least 1.

    Raises:
        PlanError: If a number has no meaning.
    """
    _require_meaning(count, sampling_rate, 1, steps)
    low, high = 0, max(count, 1)  # the cost falls as the cap grows; at high it is 0
    while high - low > 1:
        middle = (low + high) // 2
        if truncation_delta(count, sampling_rate, middle, steps, _EPSILON) <= _SHARE * delta:
            high = middle
        else:
            low = middle
    return high


def _require_meaning(count: int, sampling_rate: float, cap: int, steps: int) -> None:
    problems = [
        Problem("the cap of a Poisson batch", needs, str(got), hint)
        for needs, got, good, hint in (
            ("a public count of at least 0", count, count >= 0, "Register an upper bound on the site's training rows"),
            ("a sampling rate in [0, 1]", sampling_rate, 0 <= sampling_rate <= 1,
             "It is the chance of a record to join a step, such as 0.01"),
            ("a cap of at least 1", cap, cap >= 1, "Raise or remove training.batch_cap"),
            ("steps of at least 0", steps, steps >= 0, "Count every noisy step of the whole run"),
        )
        if not good
    ]  # fmt: skip
    if problems:
        raise PlanError(problems)
