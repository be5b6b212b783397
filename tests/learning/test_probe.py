"""Modules of one's own that tie an example to others, to chance or to the past are refused; innocent ones are not."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from consilia.learning.flat import FlatModel
from consilia.learning.layers import forbidden
from consilia.learning.models import problems
from consilia.learning.persample.clipping import Clipping
from consilia.learning.persample.fallback import Fallback
from consilia.learning.probe import mixed_examples

WIDTH = 6


class Own(nn.Module):
    """A Linear layer behind a step of the user's own."""

    mean: Tensor
    calls: Tensor

    def __init__(self, step: Callable[["Own", Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.step, self.past = nn.Linear(WIDTH, 2), step, torch.zeros(WIDTH)
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(self.step(self, x))
        return y


def centred_by_a_buffer(own: Own, x: Tensor) -> Tensor:
    with torch.no_grad():
        own.mean.mul_(0.9).add_(0.1 * x.mean(0))
    return x - own.mean


def counting(own: Own, x: Tensor) -> Tensor:
    own.calls += 1
    return x


def moving_its_weights(own: Own, x: Tensor) -> Tensor:
    with torch.no_grad():
        own.layer.weight.mul_(0.99)
    return x


def remembering(own: Own, x: Tensor) -> Tensor:
    past, own.past = own.past, x.detach().mean(0)
    return x - past


def drawing(_own: Own, x: Tensor) -> Tensor:
    return x + 0.1 * torch.rand(WIDTH)


def drawing_elsewhere(_own: Own, x: Tensor) -> Tensor:
    return x + 0.1 * torch.from_numpy(np.random.default_rng().standard_normal(WIDTH)).float()


def dropping(own: Own, x: Tensor) -> Tensor:
    return F.dropout(x, 0.5, own.training)


def normalising(_own: Own, x: Tensor) -> Tensor:
    return F.batch_norm(x, None, None, training=True)


def attending_to_the_batch(_own: Own, x: Tensor) -> Tensor:
    return torch.softmax(x @ x.T, 1) @ x


def mixing_in_evaluation(own: Own, x: Tensor) -> Tensor:
    return x if own.training else x - x.mean(0)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (centred_by_a_buffer, "changes no buffer or parameter; got a change of mean"),
        (counting, "changes no buffer or parameter; got a change of calls"),
        (moving_its_weights, "changes no buffer or parameter; got a change of layer.weight"),
        (remembering, "do not depend on earlier calls"),
        (drawing, "draws nothing at random"),
        (drawing_elsewhere, "draw nothing at random"),
        (dropping, "Remove dropout"),
        (normalising, "GroupNorm"),
        (attending_to_the_batch, "treats each example alone"),
        (mixing_in_evaluation, "treats each example alone"),
    ],
)
def test_each_fault_is_found_and_its_remedy_named(step: Callable[[Own, Tensor], Tensor], words: str) -> None:
    own = Own(step)
    found = [str(problem) for problem in problems(own, unit="record", input_shape=(WIDTH,))]
    assert any(words in text for text in found), found
    assert problems(own, unit="none", input_shape=(WIDTH,)) == []


@pytest.mark.parametrize("step", [dropping, centred_by_a_buffer])
def test_what_is_refused_does_move_a_clipped_sum_by_more_than_the_clip_norm(
    step: Callable[[Own, Tensor], Tensor],
) -> None:
    """The reason for the refusals: without the first row, every later row meets another mask or mean."""
    rows, labels = torch.randn(200, WIDTH, generator=torch.Generator().manual_seed(0)) + 3, torch.arange(200) % 2
    rows[0] *= 1000
    sums = []
    for first in (0, 1):
        torch.manual_seed(5)
        own = Own(step)
        sums.append(
            Fallback.of(FlatModel(own)).clipped_sum(rows[first:], labels[first:], Clipping("flat", 0.5)).total.clone()
        )
    assert float((sums[0] - sums[1]).norm()) > 2 * 0.5


def test_a_probe_leaves_no_trace() -> None:
    own = Own(centred_by_a_buffer).eval()
    state, before = torch.random.get_rng_state(), {name: t.clone() for name, t in own.state_dict().items()}
    mixed_examples(own, (WIDTH,))
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(before[name], tensor) for name, tensor in own.state_dict().items())
    assert not own.training


def test_what_cannot_be_called_is_one_problem() -> None:
    (found,) = problems(nn.Linear(WIDTH + 1, 2), unit="record", input_shape=(WIDTH,))
    assert "RuntimeError" in found.got


@pytest.mark.parametrize(
    "layer",
    [
        nn.Dropout(0.0), nn.Dropout2d(0.5), nn.AlphaDropout(0.1), nn.FeatureAlphaDropout(0.1), nn.RReLU(),
        nn.LSTM(2, 3, num_layers=2, dropout=0.1), nn.GRU(2, 3, num_layers=2, dropout=0.1),
        nn.MultiheadAttention(4, 2, dropout=0.1), nn.TransformerEncoderLayer(4, 2, dropout=0.0),
        nn.FractionalMaxPool2d(2, output_size=1),
    ],
)  # fmt: skip
def test_layers_that_draw_are_refused_by_kind(layer: nn.Module) -> None:
    found = forbidden(nn.Sequential(nn.Sequential(layer)), "record")
    assert found
    assert all(problem.hint for problem in found)
    assert forbidden(layer, "site") == forbidden(layer, "none") == []
    assert FlatModel(nn.Sequential(layer, nn.Linear(2, 2))).stochastic


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2)), (4,)),
        (
            nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.InstanceNorm2d(8), nn.SELU(), nn.Flatten()),
            (3, 5, 5),
        ),
        (nn.LSTM(3, 4, num_layers=2, batch_first=True), (5, 3)),
        (nn.Linear(4, 2).double(), (4,)),
    ],
)
def test_what_treats_each_example_alone_passes(module: nn.Module, shape: tuple[int, ...]) -> None:
    if isinstance(module, nn.LSTM):
        module.register_forward_hook(lambda _module, _inputs, output: output[0][:, -1])
    assert problems(module, unit="record", input_shape=shape) == []
