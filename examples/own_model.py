"""A model of one's own: any importable factory that the site's environment has installed.

python examples/own_model.py

The plan names it as "module:factory"; the coordinator never sends code. Here the module is this file.
"""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor, nn

import consilia


class Gated(nn.Module):
    """A linear score, and a second one that lets parts of it through."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.score = nn.Linear(inputs, classes)
        self.gate = nn.Linear(inputs, classes)

    def forward(self, rows: Tensor) -> Tensor:
        """Return logits, shape (rows, classes)."""
        gated: Tensor = self.score(rows) * self.gate(rows).sigmoid()
        return gated


def gated(input_shape: Sequence[int], classes: int) -> nn.Module:
    """Build the model for rows of this shape; Consilia seeds the initial weights."""
    return Gated(input_shape[0], classes)


if __name__ == "__main__":
    plan = consilia.load(
        Path(__file__).parent / "plans" / "heart.toml",
        set=["model.name=own_model:gated", "privacy.epsilon=3", "training.rounds=60"],
    )
    result = consilia.run(plan)
    print(f"{result.model.size} parameters, accuracy {result.summary['accuracy']:.3f}, "
          f"epsilon {result.summary['epsilon']:.3f}")  # fmt: skip
