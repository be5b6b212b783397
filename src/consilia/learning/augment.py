"""Random views of images: each record is seen in several of them, and counts once."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  (the name torch documents)

from consilia.core.errors import PlanError
from consilia.core.randomness import SecretRng

Kind = Literal["shift", "shift-flip"]

_REACH = 2  # pixels
_PLACES = 2 * _REACH + 1


def views(features: Tensor, count: int, kind: Kind, secret: SecretRng) -> Tensor:
    """Return random views of each image, shape (b * count, c, h, w); those of one record stand side by side.

    A view is the image moved by -2 to 2 pixels in each direction, each place equally likely; "shift-flip" also mirrors it
    left to right with probability 1/2. What moves in from outside repeats the nearest pixel of the edge: zeros would be
    grey on images in [-1, 1], while an edge is background where there is one, whatever the scale of the values.

    A record's views must be averaged into one gradient before that is clipped: then the record still adds a vector of at
    most the clip norm, and more views cost time but no privacy.

    Args:
        features: Images, shape (b, c, h, w); b may be 0.
        count: Views of each record, at least 1.
        kind: What a view may change.
        secret: Which view is drawn; the same stream gives the same views.

    Raises:
        PlanError: If the rows are no images, or no view is asked for.

    Source:
        De et al. (2022), Unlocking high-accuracy differentially private image classification through scale
        (augmentation multiplicity).
    """
    if features.dim() != 4:
        raise PlanError.of(
            f'augment = "{kind}"', needs="images, rows of shape (channels, height, width)",
            got=f"rows of shape {tuple(features.shape[1:])}", hint='Set training.augment = "none"',
        )  # fmt: skip
    if count < 1:
        raise PlanError.of("training.views", needs="at least one view of a record", got=count, hint="Set it to 1")
    rows, _, height, width = features.shape
    if rows == 0:
        return features
    padded = F.pad(features, (_REACH,) * 4, mode="replicate")
    sides = padded[None] if kind == "shift" else torch.stack([padded, padded.flip(-1)])
    # All places of all images as one view in memory, (side, row, top, left, c, h, w): a draw copies one block of it.
    places = sides.unfold(3, height, 1).unfold(4, width, 1).permute(0, 1, 3, 4, 2, 5, 6)
    draws = torch.from_numpy(secret.uniform(3 * rows * count)).view(3, -1)
    side, top, left = (
        (draw * choices).long().to(features.device)
        for draw, choices in zip(draws, (len(sides), _PLACES, _PLACES), strict=True)
    )
    row = torch.arange(rows, device=features.device).repeat_interleave(count)
    drawn: Tensor = places[side, row, top, left]
    return drawn
