"""Initial weights of MNIST's small CNN from made-up glyphs: `python -m benchmarks.stroke_prior` trains and writes them.

The net learns to tell 300 classes of random strokes apart. Its last layer is thrown away: the file holds zeros for ten classes.
One seed fixes all of it; another version of torch or another processor may round otherwise.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn

from benchmarks.strokes import SIDE, draw, invent
from benchmarks.study import ROOT
from consilia.learning.models import build

PLACE = ROOT / "benchmarks" / "plans" / "mnist-strokes.safetensors"
COMMAND = "python -m benchmarks.stroke_prior"
SOURCE = "synthetic strokes drawn by benchmarks/strokes.py: no real image, no person's data"
_SEED, _DIGITS = 1, 10


@dataclass(frozen=True)
class Size:
    """How many classes of glyphs, images and passes, and how many images are held out to see that it learns."""

    classes: int
    images: int
    passes: int
    held_out: int


FULL, SMALL = Size(300, 100_000, 15, 2_000), Size(5, 2_000, 3, 500)


def train(size: Size) -> tuple[dict[str, Tensor], float]:
    """Return the weights, with a head of zeros for ten classes, and the accuracy on glyphs that were held out.

    Decay and smoothing keep the tanh units out of saturation: without them private steps, which are short, hardly move them.
    """
    rng, generator = np.random.default_rng(_SEED), torch.Generator().manual_seed(_SEED)
    glyphs = invent(size.classes, rng)
    drawn = rng.integers(0, size.classes, size.images)
    images = torch.cat([draw(glyphs, part, rng) for part in np.array_split(drawn, -(-size.images // 1000))])
    labels = torch.from_numpy(drawn)
    model = build(
        "mnist-cnn", input_shape=(1, SIDE, SIDE), classes=size.classes, hidden=(), activation="tanh", seed=_SEED
    )
    fit(model, images[size.held_out :], labels[size.held_out :], size.passes, generator)
    with torch.no_grad():
        right = model(images[: size.held_out]).argmax(1) == labels[: size.held_out]
    weights = model.state_dict()
    *_, weight, bias = weights
    weights[weight] = torch.zeros(_DIGITS, weights[weight].shape[1])
    weights[bias] = torch.zeros(_DIGITS)
    return weights, float(right.double().mean())


def fit(model: nn.Module, images: Tensor, labels: Tensor, passes: int, generator: torch.Generator) -> None:
    """Train by AdamW in batches of 256, the rate up to .004 and down again."""
    batch = 256
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.004, weight_decay=0.3)
    rate = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 0.004, total_steps=passes * -(-len(labels) // batch), pct_start=0.1
    )
    for _ in range(passes):
        for rows in torch.randperm(len(labels), generator=generator).split(batch):  # type: ignore[no-untyped-call]
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[rows]), labels[rows], label_smoothing=0.1).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            rate.step()


def main(arguments: Sequence[str] | None = None) -> float:
    """Train, write the file and return the accuracy on glyphs that were held out."""
    parser = argparse.ArgumentParser(prog=COMMAND)
    parser.add_argument("--small", action="store_true", help="seconds, to see that the script works; of no use")
    parser.add_argument("--out", type=Path, default=None, help=f"the file; {PLACE.relative_to(ROOT)}")
    options = parser.parse_args(arguments)
    if options.small and options.out is None:
        parser.error("--small needs --out: its weights must not stand where the full ones do")
    torch.set_num_threads(1)
    started = time.monotonic()
    weights, accuracy = train(SMALL if options.small else FULL)
    place = options.out or PLACE
    made = COMMAND + (" --small" if options.small else "")
    # One entry: the order of several is left to chance, and so would be the file's bytes.
    origin = f"{made}; {SOURCE}; torch {torch.__version__}"
    safetensors.torch.save_file(weights, place, metadata={"origin": origin})
    print(f"{place}: {100 * accuracy:.1f} % of glyphs held out, {time.monotonic() - started:.0f} s")
    return accuracy


if __name__ == "__main__":
    main()
