"""What a site tells about how a model does on its held-out rows."""

import numpy as np

from consilia.core.canonical import Json
from consilia.core.randomness import SecretRng
from consilia.dp.mechanism import GaussianMechanism
from consilia.rounds.ports import Score


def exact(score: Score) -> dict[str, Json]:
    """Return the score as it is: for held-out rows that are public."""
    loss = score.loss_sum / score.rows if score.rows else None
    return {
        "n": score.rows,
        "accuracy": score.correct / score.rows if score.rows else None,
        "loss": loss if loss is not None and np.isfinite(loss) else None,
    }


def noisy(score: Score, deviation: float, rng: SecretRng) -> dict[str, Json]:
    """Return the counts of right and of wrong answers with noise.

    Args:
        score: The exact one.
        deviation: Standard deviation of the noise on each count; what one row can do to the pair is in the event that was
            charged.
        rng: The site's secret stream.
    """
    counts = np.array([score.correct, score.rows - score.correct], float)
    right, wrong = GaussianMechanism(deviation, 1.0).release(counts, rng)
    right, wrong = max(0.0, float(right)), max(0.0, float(wrong))
    total = right + wrong
    return {"n": round(total), "accuracy": right / total if total > 0 else None, "loss": None}
