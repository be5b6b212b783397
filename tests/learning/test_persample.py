"""Clipped sums equal the slow oracle, on drawn models, and bad examples count as nothing."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from consilia.learning.flat import FlatModel
from consilia.learning.models import build
from consilia.learning.persample import fallback, kernels, traced
from consilia.learning.persample.choose import choose
from consilia.learning.persample.clipping import Clipping
from consilia.learning.persample.engine import PerExample
from consilia.learning.persample.fallback import Fallback
from consilia.learning.persample.linear import LinearChain
from consilia.learning.persample.traced import Traced

Oracle = Callable[[nn.Module, Tensor, Tensor, float], Tensor]
flat = partial(Clipping, "flat")
chosen = partial(choose, timed=False)
CLASSES = 3


def assert_same(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


@st.composite
def chains(draw: st.DrawFn) -> tuple[nn.Module, tuple[int, ...]]:
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    widths = draw(st.lists(st.integers(1, 6), max_size=3))
    layers: list[nn.Module] = [nn.Flatten()]
    before = int(torch.tensor(shape).prod())
    for width in widths:
        layers.append(nn.Linear(before, width, bias=draw(st.booleans())))
        layers += [kind() for kind in draw(st.lists(st.sampled_from([nn.ReLU, nn.Tanh, nn.Flatten]), max_size=3))]
        before = width
    layers.append(nn.Linear(before, CLASSES, bias=draw(st.booleans())))
    return nn.Sequential(nn.Sequential(*layers[:2]), *layers[2:]), shape


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[nn.Module, tuple[int, ...]]:
    channels, out, side = draw(st.integers(1, 3)), draw(st.integers(2, 6)), draw(st.integers(4, 7))
    kernel, stride, padding = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(0, 1))
    layers: list[nn.Module] = [
        nn.Conv2d(channels, out, kernel, stride=stride, padding=padding, bias=draw(st.booleans()))
    ]
    if draw(st.booleans()):
        layers.append(nn.Conv2d(out, 5, 2, stride=stride, padding=1, bias=draw(st.booleans())))
        out = 5
    if draw(st.booleans()):
        layers.append(nn.GroupNorm(1, out))
    layers += [draw(st.sampled_from([nn.ReLU, nn.Tanh]))(), nn.AdaptiveAvgPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(4 * out, CLASSES)), (channels, side, side)


def batch(shape: tuple[int, ...], rows: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scale = 10.0 ** torch.randint(-2, 2, (rows, *(1 for _ in shape)), generator=generator).double()
    features = torch.randn(rows, *shape, generator=generator, dtype=torch.float64) * scale
    return features, torch.randint(0, CLASSES, (rows,), generator=generator)


@settings(max_examples=60, deadline=None)
@given(chains(), st.integers(0, 9), st.floats(1e-3, 100), st.integers(0, 10**6))
def test_chain_equals_oracle(
    slow_clipped_sum: Oracle, drawn: tuple[nn.Module, tuple[int, ...]], rows: int, clip_norm: float, seed: int
) -> None:
    module, shape = drawn
    model = FlatModel(module.double())
    features, labels = batch(shape, rows, seed)
    engine = chosen(model, features.dim())
    assert isinstance(engine, LinearChain)
    expected = slow_clipped_sum(module, features, labels, clip_norm)
    assert_same(engine.clipped_sum(features, labels, flat(clip_norm)).total, expected)
    assert_same(Fallback.of(model).clipped_sum(features, labels, flat(clip_norm)).total, expected)


@settings(max_examples=25, deadline=None)
@given(convolutions(), st.integers(0, 5), st.floats(1e-3, 100), st.integers(0, 10**6), st.integers(1, 3))
def test_convolutions_equal_oracle(
    slow_clipped_sum: Oracle,
    drawn: tuple[nn.Module, tuple[int, ...]],
    rows: int,
    clip_norm: float,
    seed: int,
    chunk: int,
) -> None:
    module, shape = drawn
    model = FlatModel(module.double())
    features, labels = batch(shape, rows, seed)
    engine = chosen(model, features.dim())
    assert isinstance(engine, Traced)
    expected = slow_clipped_sum(module, features, labels, clip_norm)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traced, "_MOST_ROWS", chunk)
        patch.setattr(kernels, "_PATCHES_AT_ONCE", 50 * chunk)
        patch.setattr(kernels, "_LARGE_PATCHES", 0 if chunk == 1 else 10**6)
        patch.setattr(kernels, "_FEW_CHANNELS", chunk)
        assert_same(engine.clipped_sum(features, labels, flat(clip_norm)).total, expected)
    assert_same(Fallback.of(model).clipped_sum(features, labels, flat(clip_norm)).total, expected)


@pytest.mark.parametrize("name", ["logistic", "mlp", "nodule-cnn", "resnet-gn"])
@pytest.mark.parametrize("chunk", [1, 1 << 23])
@settings(max_examples=8, deadline=None)
@given(bad=st.lists(st.tuples(st.integers(0, 6), st.sampled_from(["nan", "inf", "-inf"])), max_size=8))
def test_bad_examples_contribute_nothing_else(
    slow_clipped_sum: Oracle, name: str, chunk: int, bad: list[tuple[int, str]]
) -> None:
    module = build(name, input_shape=(1, 4, 4), classes=CLASSES, hidden=(5,), activation="tanh", seed=1).double()
    model = FlatModel(module)
    features, labels = batch((1, 4, 4), 7, seed=2)
    spoilt = features.clone()
    for row, value in bad:
        spoilt[row, 0, row % 4, 1] = float(value)
    good = [row for row in range(7) if torch.isfinite(spoilt[row]).all()]
    expected = slow_clipped_sum(module, features[good], labels[good], 0.5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fallback, "_ELEMENTS_AT_ONCE", chunk)
        patch.setattr(traced, "_MOST_ROWS", chunk)
        total = chosen(model, 4).clipped_sum(spoilt, labels, flat(0.5)).total
    assert_same(total, expected)


@pytest.mark.parametrize("engine", [chosen, lambda model, _rank: Fallback.of(model)], ids=["chosen", "fallback"])
@pytest.mark.parametrize(
    ("name", "side"),
    [("logistic", 4), ("logistic", 400), ("mlp", 4), ("mlp", 128), ("nodule-cnn", 4), ("nodule-cnn", 64)],
)
def test_each_contribution_is_at_most_the_clip_norm(
    engine: Callable[[FlatModel, int], PerExample], name: str, side: int
) -> None:
    """In float32, and without any allowance for it: a million squares are added up with care."""
    model = FlatModel(build(name, input_shape=(1, side, side), classes=CLASSES, seed=1))
    clip = engine(model, 4)
    features, labels = batch((1, side, side), 8, seed=3)
    seen = [
        float(clip.clipped_sum(x.float(), y, flat(0.03)).total.double().norm())
        for x, y in zip(torch.split(features, 1), torch.split(labels, 1), strict=True)
    ]
    assert 0.03 * (1 - 1e-5) <= max(seen) <= 0.03


class _Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.a(self.a(x))
        return y


class _Doubled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def _hooked() -> nn.Module:
    layer = nn.Linear(3, 3)
    layer.register_forward_hook(lambda _module, _inputs, output: 2 * output)
    return nn.Sequential(layer)


def _frozen() -> nn.Module:
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    module[0].bias.requires_grad_(False)
    return module


class _TwoLayersOneWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.b(self.a(x).tanh())
        return y


def _shared() -> nn.Module:
    layer = nn.Linear(3, 3)
    return nn.Sequential(layer, nn.Tanh(), layer)


@pytest.mark.parametrize(
    "module", [_Tied(), _TwoLayersOneWeight(), nn.Sequential(_Doubled(3, 3)), _hooked(), _frozen(), _shared(), nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)))]
)  # fmt: skip
def test_closed_form_is_not_used_where_it_would_be_wrong(slow_clipped_sum: Oracle, module: nn.Module) -> None:
    model = FlatModel(module.double())
    features, labels = batch((3,), 6, seed=4)
    engine = chosen(model, 2)
    assert isinstance(engine, Traced)
    total = engine.clipped_sum(features, labels, flat(0.7)).total
    assert_same(total, slow_clipped_sum(module, features, labels, 0.7))


def test_a_linear_layer_on_sequences_is_no_chain() -> None:
    module = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Flatten(), nn.Linear(12, 3))
    assert isinstance(chosen(FlatModel(module), 3), Traced)
    assert isinstance(chosen(FlatModel(nn.Sequential(nn.Flatten(), *module)), 3), LinearChain)


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.unused, self.head = nn.LSTM(2, 3, batch_first=True), nn.Linear(1, 1), nn.Linear(3, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.body(x)[0][:, -1])
        return y if float(x.sum()) < 1e9 else 0 * y


def test_layers_that_cannot_be_batched_go_one_at_a_time(slow_clipped_sum: Oracle) -> None:
    module = _Recurrent().double()
    model = FlatModel(module)
    features, labels = batch((4, 2), 5, seed=6)
    features[2] = float("nan")
    chosen(model, 3).clipped_sum(features, labels, flat(0.4))
    used = [p for name, p in module.named_parameters() if not name.startswith("unused")]
    module.unused.requires_grad_(False)
    expected = slow_clipped_sum(module, features, labels, 0.4)
    assert_same(torch.cat([p.grad.flatten() for p in used if p.grad is not None]), expected)
