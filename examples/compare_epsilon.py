"""What privacy costs on the Heart table: accuracy at epsilon 1, 3 and without noise, over several splits.

python examples/compare_epsilon.py [number of splits, 3 when absent]

Looking at several results and keeping the best is a choice that no single run's epsilon covers; here the table is public.
"""

import statistics
import sys
from pathlib import Path

import consilia

PLANS = Path(__file__).parent / "plans"


def accuracy(plan: str, seed: int, *changes: str) -> float:
    """Train once; the seed decides which patients are held out."""
    result = consilia.run(consilia.load(PLANS / plan, set=[f"run.seed={seed}", *changes]))
    return float(result.summary["accuracy"])


if __name__ == "__main__":
    seeds = range(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
    print(f"{'epsilon':>8}  {'mean accuracy':>13}  lowest to highest of {len(seeds)} splits")
    for label, plan, changes in (
        ("1", "heart.toml", ["privacy.epsilon=1"]),
        ("3", "heart.toml", ["privacy.epsilon=3"]),
        ("none", "heart-open.toml", []),
    ):
        found = [accuracy(plan, seed, *changes) for seed in seeds]
        print(f"{label:>8}  {statistics.mean(found):>13.3f}  {min(found):.3f} to {max(found):.3f}")
