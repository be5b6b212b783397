"""The catalogue and users' factories."""

import sys
import types

import pytest
import torch
from torch import Tensor, nn

from consilia.core.errors import PlanError
from consilia.learning.models import CATALOGUE, build, problems


def size(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("name", "shape", "classes", "expected"),
    [
        ("logistic", (108,), 2, 218),
        ("mlp", (22,), 2, 22 * 64 + 64 + 64 * 2 + 2),
        ("mnist-cnn", (1, 28, 28), 10, 26_010),
        ("nodule-cnn", (1, 32, 32), 2, 543_490),
        ("nodule-cnn", (1, 128, 128), 2, 8_407_810),
        ("lung-cnn", (1, 128, 128), 2, 89_282),
        ("lung-cnn", (1, 64, 64), 2, 89_282),
        ("resnet-gn", (3, 32, 32), 10, 77_850),
        ("ws-resnet", (3, 32, 32), 10, 77_850),
        ("tabular-transformer", (22,), 2, 18_658),
    ],
)
def test_sizes(name: str, shape: tuple[int, ...], classes: int, expected: int) -> None:
    assert size(build(name, input_shape=shape, classes=classes, seed=0)) == expected


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_model_takes_odd_images_and_is_fit_for_clipping(name: str) -> None:
    model = build(name, input_shape=(2, 15, 17), classes=3, activation="tanh", seed=0)
    assert model(torch.zeros(2, 2, 15, 17)).shape == (2, 3)
    assert problems(model, unit="record", input_shape=(2, 15, 17)) == []


def test_seed_decides_the_weights_and_nothing_else() -> None:
    state = torch.random.get_rng_state()
    first, same, other = (build("mlp", input_shape=(4,), classes=2, seed=s) for s in (1, 1, 2))
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), same.parameters(), strict=True))
    assert not torch.equal(next(first.parameters()), next(other.parameters()))


def test_known_layers_are_named_once_with_their_replacement() -> None:
    model = nn.Sequential(nn.Conv2d(1, 24, 3), nn.Sequential(nn.BatchNorm2d(24)), nn.SyncBatchNorm(8), nn.Dropout(0.0))
    found = [str(problem) for problem in problems(model, unit="record", input_shape=(1, 8, 8))]
    assert len(found) == 3
    assert "torch.nn.GroupNorm(8, 24)" in found[0]
    assert "'1.0'" in found[0]
    nn.GroupNorm(8, 24)
    # The update of a site is clipped as a whole: masks are harmless, statistics of its rows are not.
    assert len(problems(model, unit="site", input_shape=(1, 8, 8))) == 2
    assert problems(model, unit="none", input_shape=(1, 8, 8)) == []


@pytest.mark.parametrize(
    ("name", "shape", "match"),
    [
        ("resnet", (3, 32, 32), "resnet-gn"),
        ("mnist-cnn", (1, 12, 12), "at least 14 x 14"),
        ("nodule-cnn", (10,), "channels, height, width"),
        ("lung-cnn", (1, 7, 64), "at least 8 x 8"),
        ("tabular-transformer", (1025,), "at most 1024 columns"),
        ("no_such_package:factory", (3,), "ModuleNotFoundError"),
        ("json:no_such_factory", (3,), "AttributeError"),
        ("consilia_test_nets:fails", (3,), "ZeroDivisionError"),
        ("consilia_test_nets:no_module", (3,), "AttributeError"),
        ("consilia_test_nets:one_logit", (3,), "logits"),
    ],
)
def test_refusals(factories: None, name: str, shape: tuple[int, ...], match: str) -> None:
    with pytest.raises(PlanError, match=match):
        build(name, input_shape=shape, classes=4, seed=0)


def test_factory_is_called_with_shape_and_classes(factories: None) -> None:
    model = build("consilia_test_nets:fine", input_shape=(3,), classes=4, seed=0)
    assert size(model) == 16
    assert model.training


@pytest.fixture
def factories(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("consilia_test_nets")

    def fine(*, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Linear(input_shape[0], classes)

    def one_logit(*, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Linear(input_shape[0], 1)

    def fails(*, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        raise ZeroDivisionError

    def no_module(*, input_shape: tuple[int, ...], classes: int) -> Tensor:
        return torch.zeros(input_shape)

    for function in (fine, one_logit, fails, no_module):
        setattr(module, function.__name__, function)
    monkeypatch.setitem(sys.modules, "consilia_test_nets", module)


def leaving(**_: object) -> nn.Module:
    raise SystemExit(0)


def test_a_factory_that_ends_the_program_is_refused() -> None:
    with pytest.raises(PlanError, match="SystemExit"):
        build(f"{__name__}:leaving", input_shape=(2,), classes=2, seed=0)


def test_a_model_larger_than_memory_is_refused() -> None:
    with pytest.raises(PlanError, match="a model that fits into memory"):
        build("mlp", input_shape=(2,), classes=2, hidden=(10**7, 10**7), seed=0)
