"""Views of images: where they come from, how often each is drawn, and that records stay together."""

import numpy as np
import pytest
import torch
from torch import Tensor

from consilia.core.errors import PlanError
from consilia.core.randomness import SecretRng, SharedSeed
from consilia.learning.augment import views


def rng(seed: int = 0) -> SecretRng:
    return SecretRng.reproducible_from(SharedSeed.of(seed))


def every_view(image: Tensor, *, flip: bool) -> list[Tensor]:
    """All views of one image (c, h, w), pixel by pixel: outside, the nearest pixel of the edge."""
    _, height, width = image.shape
    found = []
    for source in [image, image.flip(-1)] if flip else [image]:
        for down in range(-2, 3):
            for right in range(-2, 3):
                rows = [min(max(r + down, 0), height - 1) for r in range(height)]
                columns = [min(max(c + right, 0), width - 1) for c in range(width)]
                found.append(source[:, rows][:, :, columns])
    return found


@pytest.mark.parametrize(("kind", "number"), [("shift", 25), ("shift-flip", 50)])
def test_every_view_is_drawn_equally_often_and_no_other(kind: str, number: int) -> None:
    image = torch.randn(2, 6, 7)
    allowed = {view.numpy().tobytes(): 0 for view in every_view(image, flip=kind == "shift-flip")}
    assert len(allowed) == number
    draws = 200 * number
    for view in views(image[None], draws, kind, rng()):  # type: ignore[arg-type]
        allowed[view.contiguous().numpy().tobytes()] += 1  # KeyError: a view that must not be
    counts = np.array(list(allowed.values()))
    statistic = ((counts - 200) ** 2 / 200).sum()
    assert statistic < number + 5 * np.sqrt(2 * number)  # chi-square; a place left out adds 200


@pytest.mark.parametrize("kind", ["shift", "shift-flip"])
def test_views_of_a_record_stand_side_by_side(kind: str) -> None:
    images = torch.arange(5.0)[:, None, None, None].expand(5, 3, 4, 4)
    found = views(images, 3, kind, rng())  # type: ignore[arg-type]
    assert found.shape == (15, 3, 4, 4)
    assert found[:, 0, 0, 0].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]


def test_views_differ_between_records_and_calls_and_repeat_with_the_stream() -> None:
    images = torch.randn(1, 1, 8, 8).expand(64, 1, 8, 8)
    stream = rng(1)
    first, second = views(images, 1, "shift", stream), views(images, 1, "shift", stream)
    assert not torch.equal(first, second)
    assert len({view.numpy().tobytes() for view in first}) > 15  # of 25
    torch.testing.assert_close(views(images, 1, "shift", rng(1)), first, rtol=0, atol=0)
    assert not torch.equal(views(images, 1, "shift", rng(2)), first)


def test_nothing_is_shared_with_the_features() -> None:
    images = torch.randn(4, 1, 5, 5, dtype=torch.float64)
    before = images.clone()
    found = views(images, 2, "shift-flip", rng())
    assert found.dtype == torch.float64
    found.zero_()
    assert torch.equal(images, before)


@pytest.mark.parametrize("shape", [(0, 1, 8, 8), (2, 1, 1, 1), (2, 3, 1, 9)])
def test_odd_batches(shape: tuple[int, ...]) -> None:
    found = views(torch.ones(shape), 4, "shift-flip", rng())
    assert found.shape == (4 * shape[0], *shape[1:])
    assert (found == 1).all()


@pytest.mark.parametrize(("shape", "count", "match"), [((3, 22), 2, "needs images"), ((3, 8, 8), 1, r"shape \(8, 8\)"),
                                                       ((3, 1, 8, 8), 0, "at least one view")])  # fmt: skip
def test_refusals(shape: tuple[int, ...], count: int, match: str) -> None:
    with pytest.raises(PlanError, match=match):
        views(torch.zeros(shape), count, "shift", rng())
