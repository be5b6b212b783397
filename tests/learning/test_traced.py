"""Any module's clipped sums equal the slow way, for every kind of clipping, for units of several rows, and in chunks."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.learning.slow_units import slow_sum
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from consilia.learning.flat import FlatModel
from consilia.learning.models import build
from consilia.learning.persample import traced
from consilia.learning.persample.clipping import Clipping, Kind
from consilia.learning.persample.fallback import Fallback
from consilia.learning.persample.traced import Traced
from consilia.learning.persample.units import Units

CLASSES, TIMES, WIDTH = 3, 5, 4
KINDS: tuple[Kind, ...] = ("flat", "per-layer", "automatic")
Module = tuple[nn.Module, tuple[int, ...]]


class Wrapped(nn.Module):
    """Layers and tensors of its own around a step of the test's."""

    def __init__(self, step: Callable[[Any, Tensor], Any], width: int, **layers: nn.Module) -> None:
        super().__init__()
        self.step, self.head = step, nn.Linear(width, CLASSES)
        self.places = nn.Parameter(torch.randn(TIMES, WIDTH))
        self.scale = nn.Parameter(torch.randn(1, 1, WIDTH))
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.step(self, x))
        return y


class Standardised(nn.Conv2d):
    """A convolution whose weights are standardised in every pass."""

    def forward(self, x: Tensor) -> Tensor:
        w = self.weight
        w = (w - w.mean((1, 2, 3), keepdim=True)) / (w.std((1, 2, 3), keepdim=True) + 1e-5)
        return F.conv2d(x, w, self.bias, self.stride, self.padding)


def recurrent(layer: nn.RNNBase) -> nn.Module:
    width = layer.hidden_size * (2 if layer.bidirectional else 1)
    return Wrapped(lambda m, x: m.body(x)[0][:, -1] + m.body(x)[0][:, 0], width, body=layer)


def attending(batch_first: bool) -> nn.Module:
    def step(m: Any, x: Tensor) -> Any:
        x = x * m.scale + m.places
        y = x if batch_first else x.transpose(0, 1)
        y = m.norm(y + m.attention(y, y, y)[0])
        return (y if batch_first else y.transpose(0, 1)).mean(1)

    layer = nn.MultiheadAttention(WIDTH, 2, batch_first=batch_first)
    return Wrapped(step, WIDTH, attention=layer, norm=nn.LayerNorm(WIDTH))


def table() -> nn.Module:
    def step(m: Any, x: Tensor) -> Any:
        y = m.body((x.abs() * 3).long().clamp(max=6))
        return y.mean((1, 2)) + F.linear(y.sum((1, 2)), m.body.weight)[:, :WIDTH]  # the same table as a matrix

    return Wrapped(step, WIDTH, body=nn.Embedding(7, WIDTH, padding_idx=2))


def residual(groups: int) -> nn.Module:
    body = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.GroupNorm(2, 4), nn.ReLU(inplace=True),
        nn.Conv2d(4, 2, 3, padding="same", dilation=2, groups=groups), nn.InstanceNorm2d(2, affine=True),
    )  # fmt: skip
    return Wrapped(lambda m, x: (x + m.body(x)).flatten(1), 72, body=body)


MODULES: dict[str, Callable[[], Module]] = {
    "residual": lambda: (residual(1), (2, 6, 6)),
    "grouped": lambda: (residual(2), (2, 6, 6)),
    "resnet-gn": lambda: (build("resnet-gn", input_shape=(1, 4, 4), classes=CLASSES, seed=1), (1, 4, 4)),
    "mnist-cnn": lambda: (build("mnist-cnn", input_shape=(1, 14, 14), classes=CLASSES, seed=1), (1, 14, 14)),
    "standardised": lambda: (nn.Sequential(Standardised(2, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(64, CLASSES)), (2, 6, 6)),
    "few places": lambda: (nn.Sequential(nn.Conv2d(9, 16, 3), nn.Flatten(), nn.Linear(16, CLASSES)), (9, 3, 3)),
    "one dimension": lambda: (
        nn.Sequential(nn.Conv1d(TIMES, 6, 2, stride=2, padding=1, dilation=1), nn.ReLU(), nn.Conv1d(6, 2, 2), nn.Flatten(),
                      nn.Linear(4, CLASSES)), (TIMES, WIDTH)),
    "three dimensions": lambda: (
        nn.Sequential(nn.Conv3d(2, 3, 2, padding=1), nn.Flatten(), nn.Linear(192, CLASSES)), (2, 3, 3, 3)),
    "sequence": lambda: (
        nn.Sequential(nn.Linear(WIDTH, 6), nn.ReLU(inplace=True), nn.RMSNorm(6), nn.Linear(6, 7), nn.Flatten(),
                      nn.Linear(35, CLASSES)), (TIMES, WIDTH)),
    "twice": lambda: (Wrapped(lambda m, x: m.body(m.body(x).tanh()).relu(), WIDTH, body=nn.Linear(WIDTH, WIDTH)), (WIDTH,)),
    "product": lambda: (Wrapped(lambda m, x: (x @ m.places.t() @ m.places + m.scale[0, 0]).tanh(), WIDTH), (WIDTH,)),
    "merged": lambda: (
        Wrapped(lambda m, x: m.body(x.reshape(-1, WIDTH)).view(len(x), -1), 30, body=nn.Linear(WIDTH, 6)), (TIMES, WIDTH)),
    "attention": lambda: (attending(True), (TIMES, WIDTH)),
    "attention, time first": lambda: (attending(False), (TIMES, WIDTH)),
    "table": lambda: (table(), (TIMES, 2)),
    "lstm": lambda: (recurrent(nn.LSTM(WIDTH, 2, num_layers=2, bidirectional=True, batch_first=True)), (TIMES, WIDTH)),
    "gru": lambda: (recurrent(nn.GRU(WIDTH, 3, batch_first=True)), (TIMES, WIDTH)),
    "rnn": lambda: (recurrent(nn.RNN(WIDTH, 3, bias=False, batch_first=True)), (TIMES, WIDTH)),
    "weight norm": lambda: (nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, CLASSES))), (WIDTH,)),
}  # fmt: skip


def batch(shape: tuple[int, ...], rows: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scale = 10.0 ** torch.randint(-1, 2, (rows, *(1 for _ in shape)), generator=generator).double()
    features = torch.randn(rows, *shape, generator=generator, dtype=torch.float64) * scale
    return features, torch.randint(0, CLASSES, (rows,), generator=generator)


sizes = st.lists(st.integers(1, 4), max_size=5)


def units_of(counts: list[int]) -> Units:
    return Units(
        torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts, dtype=torch.int64)), len(counts)
    )


@pytest.mark.parametrize("name", MODULES)
@settings(max_examples=4, deadline=None)
@given(counts=sizes, grouped=st.booleans(), kind=st.sampled_from(KINDS), bound=st.floats(1e-2, 10), seed=st.integers(0, 999),
       chunk=st.integers(1, 9))  # fmt: skip
def test_every_kind_of_layer_equals_the_slow_way(
    name: str, counts: list[int], grouped: bool, kind: Kind, bound: float, seed: int, chunk: int
) -> None:
    torch.manual_seed(seed)
    module, shape = MODULES[name]()
    model = FlatModel(module.double())
    features, labels = batch(shape, sum(counts), seed)
    units = units_of(counts) if grouped else None
    expected, within = slow_sum(module, features, labels, Clipping(kind, bound), units)
    engine = Traced(model, timed=seed % 2 == 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traced, "_MOST_ROWS", chunk)
        found = engine.clipped_sum(features, labels, Clipping(kind, bound), units)
    torch.testing.assert_close(found.total, expected, rtol=1e-10, atol=1e-10)
    assert found.within == within
    assert not counts or engine._plans[shape] is not None, "the fast path was not taken"


class Branching(nn.Module):
    """Looks at the whole batch: what it does to one row depends on the others."""

    def __init__(self, look: Callable[[Tensor], bool]) -> None:
        super().__init__()
        self.layer, self.look = nn.Linear(WIDTH, CLASSES), look

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y if self.look(x) else 0 * y


@pytest.mark.parametrize(
    "look", [lambda x: float(x.sum()) < 1e9, lambda x: bool((x < 1e9).all()), lambda x: max(x.flatten().tolist()) < 1e9,
             lambda x: x.detach().numpy().max() < 1e9]
)  # fmt: skip
def test_a_branch_on_values_is_left_to_one_row_at_a_time(look: Callable[[Tensor], bool]) -> None:
    module = Branching(look).double()
    model = FlatModel(module)
    features, labels = batch((WIDTH,), 6, 1)
    features[3] = 1e12
    expected, _ = slow_sum(module, features, labels, Clipping("flat", 0.5), None)
    found = Traced(model, timed=False).clipped_sum(features, labels, Clipping("flat", 0.5))
    torch.testing.assert_close(found.total, expected, rtol=1e-10, atol=1e-10)


class Hidden(nn.Module):
    """Keeps a trainable tensor where no stand-in comes to: a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.extra = nn.Linear(WIDTH, CLASSES), nn.Linear(WIDTH, CLASSES)
        self.kept = [self.extra.weight]

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x) + F.linear(x, self.kept[0])
        return y


class Opaque(torch.autograd.Function):
    """A product whose own backward pass doubles the weight's gradient."""

    @staticmethod
    def forward(ctx: object, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)  # type: ignore[attr-defined]
        return x @ w.T

    @staticmethod
    def backward(ctx: object, g: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors  # type: ignore[attr-defined]
        return g @ w, 2 * g.T @ x


def doubled(x: Tensor, w: Tensor) -> Any:
    return Opaque.apply(x, w)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    "module", [Wrapped(lambda m, x: doubled(x, m.body.weight), WIDTH, body=nn.Linear(WIDTH, WIDTH)), Hidden(),
               nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.PReLU(), nn.Linear(WIDTH, CLASSES))]
)  # fmt: skip
def test_what_cannot_be_followed_is_found_by_trial(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = []
    monkeypatch.setattr(Fallback, "clipped_sum", lambda *_given: slow.append(1))
    Traced(FlatModel(module.double()), timed=False).clipped_sum(*batch((WIDTH,), 4, 1), Clipping("flat", 0.5))
    assert slow


@pytest.mark.parametrize("name", ["residual", "attention", "lstm", "table", "mnist-cnn"])
@pytest.mark.parametrize("kind", KINDS)
def test_one_unit_moves_the_sum_by_at_most_the_bound(name: str, kind: Kind) -> None:
    torch.manual_seed(0)
    module, shape = MODULES[name]()
    engine = Traced(FlatModel(module), timed=False)
    features, labels = batch(shape, 12, 3)
    features, units = 30 * features.float(), units_of([3, 1, 4, 2, 2])
    whole = engine.clipped_sum(features, labels, Clipping(kind, 0.05), units).total.clone()
    moves = []
    for unit in range(5):
        rest = units.of != unit
        without = Units.contiguous(units.of[rest])
        moves.append(
            float(
                (engine.clipped_sum(features[rest], labels[rest], Clipping(kind, 0.05), without).total - whole).norm()
            )
        )
    assert 0.02 < max(moves) <= 0.05 * (1 + 1e-5)


@pytest.mark.parametrize("name", ["residual", "attention", "lstm", "sequence"])
def test_a_unit_with_a_bad_row_counts_as_nothing(name: str) -> None:
    torch.manual_seed(0)
    module, shape = MODULES[name]()
    engine = Traced(FlatModel(module.double()), timed=False)
    features, labels = batch(shape, 9, 3)
    units = units_of([2, 3, 1, 3])
    features[3].view(-1)[0] = float("nan")
    found = engine.clipped_sum(features, labels, Clipping("flat", 0.1), units)
    good = units.of != 1
    expected, within = slow_sum(
        module, features[good], labels[good], Clipping("flat", 0.1), Units.contiguous(units.of[good])
    )
    torch.testing.assert_close(found.total, expected, rtol=1e-10, atol=1e-10)
    assert (found.within, sum(map(len, found.norms))) == (within, 3)


def test_large_images_go_through_a_few_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(4 * 62 * 62, CLASSES))
    engine = Traced(FlatModel(module), timed=False)
    seen: list[int] = []
    module.register_forward_pre_hook(lambda _module, given: seen.append(len(given[0])))
    held = 4 * (64 * 64 + 4 * 62 * 62) + 4 * 9 + 4
    monkeypatch.setattr(traced, "_ELEMENTS_AT_ONCE", 3 * held + held // 2)
    features, labels = batch((1, 64, 64), 8, 0)
    units = units_of([2, 2, 4])  # the last one is larger than a chunk, and whole all the same
    engine.clipped_sum(features[:1].float(), labels[:1], Clipping("flat", 1.0))
    seen.clear()
    engine.clipped_sum(features.float(), labels, Clipping("flat", 1.0))
    engine.clipped_sum(features.float(), labels, Clipping("flat", 1.0), units)
    assert seen == [3, 3, 2, 2, 2, 4]
