"""Images of random strokes: classes of made-up glyphs, drawn by a program, with no real image anywhere.

A network that has learnt to tell such glyphs apart is a better start for handwriting than random weights, and costs no epsilon:
there is no person's data in it. Only two things come from MNIST's public description: 28 x 28 pixels, with a glyph that fills a
box of up to 20 pixels about its centre.

Source:
    Learning from what random processes draw, then privately: Tang et al. (2023), Differentially Private Image Classification
    by Learning Priors from Random Processes, arXiv:2306.06076. Theirs are images of an untrained StyleGAN; the strokes are ours.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SIDE = 28  # pixels
_POINTS = 12  # a curve is drawn as this many points and the straight pieces between them
_MOST = 3  # strokes of a glyph
_CHUNK = 16  # images at a time: the distances of every pixel to every piece are held at once, in the processor's cache
_FAR = 1e3  # pixels: where pieces lie that are not drawn

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Glyphs:
    """What makes k classes.

    Attributes:
        control: Control points of cubic Bezier curves in a box from -1 to 1, shape (k, 3, 4, 2).
        drawn: Which of the three strokes a class has, shape (k, 3).
    """

    control: Floats
    drawn: NDArray[np.bool_]


def invent(count: int, rng: np.random.Generator) -> Glyphs:
    """Return `count` classes of one to three strokes: curves, straight lines, loops; some go on where another ended."""
    drawn = np.arange(_MOST) < rng.choice([1, 2, 3], size=count, p=[0.35, 0.4, 0.25])[:, None]
    control = rng.uniform(-1, 1, (count, _MOST, 4, 2))
    for stroke in range(1, _MOST):
        goes_on = rng.random((count, 1)) < 0.5
        control[:, stroke, 0] = np.where(goes_on, control[:, stroke - 1, 3], control[:, stroke, 0])
    straight, loop = rng.random((2, count, _MOST, 1, 1))
    along = np.linspace(0, 1, 4)[:, None]
    line = control[:, :, :1] * (1 - along) + control[:, :, 3:] * along
    control = np.where(straight < 0.25, line, control)
    closed = np.where((loop < 0.15) & (straight >= 0.25), control[:, :, :1], control[:, :, 3:])
    return Glyphs(np.concatenate([control[:, :, :3], closed], axis=2), drawn)


def draw(glyphs: Glyphs, labels: NDArray[np.int64], rng: np.random.Generator) -> Tensor:
    """Draw one image for each label: its class with moved control points, slant, turn, stretch, warp, pen and place.

    Args:
        glyphs: The classes.
        labels: Classes to draw, shape (n,).
        rng: Where every chance comes from.

    Returns:
        Shape (n, 1, 28, 28), float32, from -1 (paper) to 1 (ink), as MNIST's pixels enter a model.
    """
    n, drawn = len(labels), glyphs.drawn[labels]
    control = glyphs.control[labels] + rng.normal(0, 0.12, (n, _MOST, 4, 2))
    points = _placed(_warped(np.einsum("pc,nscd->nspd", _bernstein(), control), rng), drawn, rng)
    start = torch.from_numpy(points[:, :, :-1]).float()
    step = torch.from_numpy(points[:, :, 1:]).float() - start
    start[torch.from_numpy(~drawn)] = _FAR
    width, blur = (torch.from_numpy(rng.uniform(*span, (n, 1))).float() for span in ((0.6, 1.7), (0.2, 0.4)))
    distance = torch.cat([
        _distance(start[first : first + _CHUNK].flatten(1, 2), step[first : first + _CHUNK].flatten(1, 2))
        for first in range(0, n, _CHUNK)
    ])  # fmt: skip
    return (torch.sigmoid((width - distance) / blur) * 2 - 1).reshape(n, 1, SIDE, SIDE)


def _bernstein() -> Floats:
    """Return what each of a cubic curve's four control points counts at each point, shape (points, 4)."""
    t = np.linspace(0, 1, _POINTS)
    return np.stack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3], axis=1)


def _warped(points: Floats, rng: np.random.Generator) -> Floats:
    """Turn, slant and stretch each image's points, then bend them along one smooth wave a direction."""
    n = len(points)
    turn, slant, stretch = rng.normal(0, 0.2, n), rng.normal(0, 0.25, n), np.exp(rng.normal(0, 0.2, n))
    rows = [[np.cos(turn) * stretch, slant - np.sin(turn)], [np.sin(turn), np.cos(turn)]]
    points = np.einsum("ijn,nspj->nspi", np.array(rows), points)
    wave, phase, height = (
        rng.normal(0, 1.5, (n, 2, 2)),
        rng.uniform(0, 2 * np.pi, (n, 1, 1, 2)),
        rng.uniform(0, 0.12, (n, 1, 1, 2)),
    )
    bent: Floats = points + height * np.sin(np.einsum("nij,nspj->nspi", wave, points) + phase)
    return bent


def _placed(points: Floats, drawn: NDArray[np.bool_], rng: np.random.Generator) -> Floats:
    """Scale each image's strokes to 17 to 20 pixels and move their mean to about the middle."""
    n, mask = len(points), drawn[:, :, None, None]
    low = np.where(mask, points, np.inf).min((1, 2))
    high = np.where(mask, points, -np.inf).max((1, 2))
    scale = rng.uniform(17, 20, n) / np.maximum((high - low).max(1), 1e-6)
    middle = points.mean((1, 2), where=mask)
    place = (SIDE - 1) / 2 + rng.normal(0, 0.5, (n, 1, 1, 2))
    placed: Floats = (points - middle[:, None, None]) * scale[:, None, None, None] + place
    return placed


def _distance(start: Tensor, step: Tensor) -> Tensor:
    """Return each pixel's distance to the nearest straight piece: start and step (n, m, 2) -> (n, 784), in pixels."""
    down, right = torch.meshgrid(torch.arange(float(SIDE)), torch.arange(float(SIDE)), indexing="ij")
    x = right.reshape(-1, 1) - start[:, None, :, 0]
    y = down.reshape(-1, 1) - start[:, None, :, 1]
    dx, dy = step[:, None, :, 0], step[:, None, :, 1]
    t = ((x * dx + y * dy) / (dx**2 + dy**2).clamp_min(1e-9)).clamp_(0, 1)
    return ((x - t * dx) ** 2 + (y - t * dy) ** 2).amin(-1).sqrt()
