"""Training the head alone, or all but the head: the other part stands still, and meets neither clip nor noise."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from consilia.core.errors import PlanError
from consilia.core.randomness import SecretRng, SharedSeed
from consilia.learning.flat import FlatModel, Part
from consilia.learning.gradient import mean_gradient
from consilia.learning.local import train
from consilia.learning.models import build
from consilia.learning.optimizer import start_optimizer
from consilia.learning.private import private_gradient
from consilia.learning.work import LocalWork

Oracle = Callable[[nn.Module, Tensor, Tensor, float], Tensor]
SECRET = SecretRng.reproducible_from(SharedSeed.of(0))
HEAD = 4 * 3 + 3


def net() -> nn.Module:
    return build("mlp", input_shape=(5,), classes=3, hidden=(7, 4), seed=2)


def normed() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 3))


def rows() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    return torch.randn(12, 5, generator=generator), torch.randint(0, 3, (12,), generator=generator)


def inside(model: FlatModel, part: Part) -> NDArray[np.bool_]:
    mask = np.zeros(model.dim, bool)
    mask[model.part(part)] = True
    return mask


def test_head_and_backbone_are_the_two_ends_of_the_vector() -> None:
    model = FlatModel(net())
    assert model.part("all") == slice(0, model.dim)
    assert model.part("head") == slice(model.dim - HEAD, model.dim)
    assert model.part("backbone") == slice(0, model.dim - HEAD)
    assert [s.name for s in model.segments[-2:]] == ["5.weight", "5.bias"]


@pytest.mark.parametrize("part", ["head", "backbone"])
def test_a_round_moves_that_part_alone(part: Part, no_batch: Callable[[], NDArray[np.int64]]) -> None:
    model = FlatModel(net())
    features, labels = rows()
    work = LocalWork(steps=3, momentum=0.5, weight_decay=0.1, proximal_mu=0.1, trained=part)
    control = (np.ones(model.dim, np.float32), np.zeros(model.dim, np.float32))
    start = model.get()
    result = train(
        model, start, features, labels, work, secret=SECRET, public=SharedSeed.of(0), next_batch=no_batch, control=control,
    )  # fmt: skip
    trained = inside(model, part)
    assert result.control_delta is not None
    for vector in (result.delta, result.control_delta):
        assert (vector[~trained] == 0).all()
        assert (vector[trained] != 0).all()


@pytest.mark.parametrize("part", ["head", "backbone"])
def test_scaffold_corrects_by_the_same_coordinates(part: Part, no_batch: Callable[[], NDArray[np.int64]]) -> None:
    model = FlatModel(net())
    features, labels = rows()
    start = model.get()
    control = (np.arange(model.dim, dtype=np.float32), np.full(model.dim, 5, np.float32))
    without, corrected = (
        train(model, start, features, labels, LocalWork(trained=part, learning_rate=0.1), secret=SECRET,
              public=SharedSeed.of(0), next_batch=no_batch, control=given).delta
        for given in (None, control)
    )  # fmt: skip
    expected = np.where(inside(model, part), -0.1 * (control[0] - control[1]), 0)
    np.testing.assert_allclose(corrected - without, expected, atol=1e-5)


@pytest.mark.parametrize("part", ["head", "backbone"])
@pytest.mark.parametrize("clip", [None, 0.05])
def test_fedsgd_sends_minus_the_gradient_of_that_part_alone(
    part: Part, clip: float | None, no_batch: Callable[[], NDArray[np.int64]]
) -> None:
    features, labels = rows()
    work = LocalWork("fedsgd", trained=part, clip_norm=clip, expected_batch=12.0)
    model = FlatModel(net())
    result = train(
        model, model.get(), features, labels, work, secret=SECRET, public=SharedSeed.of(0), next_batch=no_batch,
    )  # fmt: skip
    trained = inside(model, part)
    assert (result.delta[~trained] == 0).all()
    assert len(model.grad) == trained.sum()
    np.testing.assert_array_equal(result.delta[trained], -model.grad.numpy())


@pytest.mark.parametrize("part", ["head", "backbone"])
def test_the_gradient_is_that_of_the_whole_at_this_part(part: Part) -> None:
    features, labels = rows()
    whole, model = FlatModel(net()), FlatModel(net())
    mean_gradient(whole, features, labels)
    model.train_only(part)
    mean_gradient(model, features, labels)
    torch.testing.assert_close(model.grad, whole.grad[torch.from_numpy(inside(model, part))])


@pytest.mark.parametrize("part", ["head", "backbone"])
def test_clip_and_noise_cover_that_part_alone(part: Part, slow_clipped_sum: Oracle) -> None:
    features, labels = rows()
    model = FlatModel(net())
    model.train_only(part)
    clip, expected = 0.05, 12.0  # every example is clipped: over the whole vector the sums would differ
    work = LocalWork(clip_norm=clip, expected_batch=expected)
    private_gradient(model, work, 2, SECRET)(features, labels)
    slow = slow_clipped_sum(model.module, features, labels, clip) / expected
    torch.testing.assert_close(model.grad.double(), slow, rtol=1e-4, atol=1e-8)
    noisy = LocalWork(clip_norm=clip, expected_batch=1.0, noise_multiplier=200.0)
    private_gradient(model, noisy, 2, SECRET)(features[:0], labels[:0])
    assert len(model.grad) == inside(model, part).sum()
    assert float(model.grad.norm()) == pytest.approx(10 * len(model.grad) ** 0.5, rel=0.6)
    before = model.get()
    start_optimizer(model, noisy)()
    moved = before != model.get()
    np.testing.assert_array_equal(moved, inside(model, part))


@pytest.mark.parametrize("name", ["mnist-cnn", "lung-cnn", "ws-resnet", "tabular-transformer"])
@pytest.mark.parametrize("part", ["head", "backbone"])
def test_clipped_sums_of_a_part_are_exact_in_every_kind_of_model(
    name: str, part: Part, slow_clipped_sum: Oracle
) -> None:
    shape = (6,) if name == "tabular-transformer" else (2, 14, 15)
    module = build(name, input_shape=shape, classes=3, activation="tanh", seed=1).double()
    features, labels = torch.randn(4, *shape, dtype=torch.float64), torch.tensor([0, 2, 1, 1])
    model = FlatModel(module)
    model.train_only(part)
    for clip in (1e-3, 1e3):
        work = LocalWork(clip_norm=clip, expected_batch=1.0)
        private_gradient(model, work, features.dim(), SECRET)(features, labels)
        torch.testing.assert_close(model.grad, slow_clipped_sum(module, features, labels, clip), rtol=1e-9, atol=1e-12)


def test_all_comes_back() -> None:
    features, labels = rows()
    model = FlatModel(net())
    mean_gradient(model, features, labels)
    whole = model.grad.clone()
    order: tuple[Part, ...] = ("head", "backbone", "head", "all")
    for part in order:
        model.train_only(part)
    mean_gradient(model, features, labels)
    assert torch.equal(model.grad, whole)
    assert model.span == slice(0, model.dim)
    assert all(p.requires_grad for p in model.module.parameters())


def test_norms_at_the_site_belong_to_the_backbone() -> None:
    model = FlatModel(normed(), "norm")
    model.train_only("backbone")
    assert len(model.local) == 8
    assert list(model.parameters) == ["1.weight", "1.bias", "0.weight", "0.bias"]
    model.train_only("head")
    assert len(model.local) == 0
    assert list(model.parameters) == ["3.weight", "3.bias"]
    assert model.module[1].weight.requires_grad is False  # type: ignore[index]


def test_a_parameter_frozen_by_its_own_model_stays_frozen() -> None:
    module = net()
    next(module.parameters()).requires_grad_(False)
    model = FlatModel(module)
    order: tuple[Part, ...] = ("backbone", "all")
    for part in order:
        model.train_only(part)
        assert next(module.parameters()).requires_grad is False


def tied() -> nn.Module:
    first, last = nn.Linear(4, 4), nn.Linear(4, 4)
    last.weight = first.weight
    return nn.Sequential(first, nn.Tanh(), last)


def half_frozen() -> nn.Module:
    module = net()
    module[-1].bias.requires_grad_(False)  # type: ignore[index]
    return module


@pytest.mark.parametrize(
    ("module", "local", "match"),
    [
        (lambda: build("logistic", input_shape=(5,), classes=3, seed=0), "none", "something to train before layer '1'"),
        (net, "head", "a head that is shared"),
        (lambda: nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 3)), "none", "without running statistics"),
        (
            lambda: nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 3), nn.Linear(3, 3)),
            "norm",
            "without running statistics",
        ),
        (tied, "none", "used once"),
        (half_frozen, "none", "frozen"),
    ],
)
def test_refusals(module: Callable[[], nn.Module], local: str, match: str) -> None:
    model = FlatModel(module(), local)  # type: ignore[arg-type]
    parts: tuple[Part, ...] = ("head", "backbone")
    for part in parts:
        with pytest.raises(PlanError, match=match):
            model.train_only(part)
    model.train_only("all")
