"""Layers that copy records are told from honest ones: fresh, trained, collapsed, dead, tiny or narrow."""

import numpy as np
import pytest
import torch
from tests.rounds.traps import imprint
from torch import nn

from consilia.core.spec import Segment
from consilia.learning.architecture import Hidden, architecture, hidden_layers
from consilia.learning.flat import FlatModel
from consilia.learning.models import CATALOGUE, build
from consilia.rounds.looks import BINS, Looks

INPUTS = {"logistic": (13,), "mlp": (13,), "tabular-transformer": (13,)}


def flat(name: str, **settings: object) -> FlatModel:
    shape = INPUTS.get(name, (3, 32, 32) if "resnet" in name else (1, 28, 28))
    return FlatModel(build(name, input_shape=shape, classes=2, seed=5, **settings))  # type: ignore[arg-type]


def layers(model: FlatModel) -> tuple[Hidden, ...]:
    return hidden_layers(model.module, model.segments)


def fault(model: FlatModel, vector: np.ndarray) -> str | None:
    return Looks(model.get(), layers(model)).at(vector, "digest").fault


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_model_of_the_catalogue_may_start(name: str) -> None:
    model = flat(name)
    assert fault(model, model.get()) is None
    zero = np.zeros(model.dim, np.float32)
    assert fault(model, zero) is None


def test_hidden_layers_lie_where_the_vector_has_them() -> None:
    model = FlatModel(build("mlp", input_shape=(9,), classes=3, hidden=(5, 4), seed=1))
    first, second = layers(model)
    linear = [module for module in model.module.modules() if isinstance(module, nn.Linear)]
    vector = model.get()
    for layer, module in ((first, linear[0]), (second, linear[1])):
        weights = vector[layer.start : layer.start + layer.rows * layer.columns].reshape(layer.rows, layer.columns)
        assert np.array_equal(weights, module.weight.detach().numpy())
        assert np.array_equal(vector[layer.bias : layer.bias + layer.rows], module.bias.detach().numpy())
    assert layers(flat("logistic")) == ()


@pytest.mark.parametrize("columns", [8, 20, 784])
@pytest.mark.parametrize("rows", [16, 64, 300])
@pytest.mark.parametrize("disguise", [
    {}, {"noise": 0.003}, {"noise": 0.01}, {"noise": 0.03}, {"share": 0.5}, {"directions": 2}, {"lengths": (1e-20, 2e-20)},
    {"lengths": (1e15, 2e15)}, {"spread": 0.2},
])  # fmt: skip
def test_an_imprint_is_seen_under_every_disguise(columns: int, rows: int, disguise: dict[str, object]) -> None:
    model = FlatModel(build("mlp", input_shape=(columns,), classes=2, hidden=(rows,), seed=2))
    trapped = imprint(model.get(), layers(model)[0], **disguise)  # type: ignore[arg-type]
    found = fault(model, trapped)
    assert found is not None
    assert found.startswith("1.weight")


def test_many_directions_with_few_bins_each_are_seen_too() -> None:
    model = FlatModel(build("mlp", input_shape=(50,), classes=2, hidden=(64,), seed=2))
    assert "64 of 64 rows" in str(fault(model, imprint(model.get(), layers(model)[0], directions=32)))


def test_an_imprint_after_a_convolution_is_seen() -> None:
    model = flat("mnist-cnn")
    last = layers(model)[-1]
    assert last.name == "7.weight"
    assert "7.weight" in str(fault(model, imprint(model.get(), last)))


def test_a_blurred_imprint_tells_bins_apart_no_finer_than_is_let_through() -> None:
    # What passes leaves at most BINS bins: no more than honest rows do. Rows that deviate by 30 % share no direction.
    model = FlatModel(build("mlp", input_shape=(784,), classes=2, hidden=(512,), seed=2))
    assert fault(model, imprint(model.get(), layers(model)[0], noise=0.3, spread=0.2)) is None


def trained(
    columns: int, rows: int, act: type[nn.Module], *, decay: float, scale: float
) -> tuple[FlatModel, np.ndarray]:
    """Return a model and where training leads it; decay and a small start make its rows collapse to a few directions."""
    torch.manual_seed(0)
    features = torch.rand(400, columns) * 2 - 1
    labels = (features @ torch.randn(columns) > 0).long()
    module = nn.Sequential(nn.Linear(columns, rows), act(), nn.Linear(rows, rows), act(), nn.Linear(rows, 2))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(scale)
    model = FlatModel(module)
    start = model.get()
    optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9, weight_decay=decay)
    for _ in range(400):
        model.grad.zero_()
        nn.functional.cross_entropy(module(features), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    end = model.get()
    model.set(start)
    return model, end


@pytest.mark.parametrize("act", [nn.ReLU, nn.Tanh])
@pytest.mark.parametrize("columns", [1, 2, 8, 20])
@pytest.mark.parametrize(("rows", "decay", "scale"), [(8, 1e-2, 1.0), (64, 1e-2, 1.0), (64, 0.0, 0.1), (8, 0.0, 0.1)])
def test_honest_training_may_collapse(
    columns: int, act: type[nn.Module], rows: int, decay: float, scale: float
) -> None:
    model, end = trained(columns, rows, act, decay=decay, scale=scale)
    assert fault(model, end) is None


def test_rows_that_died_and_rows_that_a_factory_made_alike_are_no_traps() -> None:
    model = FlatModel(build("mlp", input_shape=(20,), classes=2, hidden=(64,), seed=2))
    (layer,) = layers(model)
    dead = model.get()
    dead[layer.start : layer.start + 40 * layer.columns] = 0
    assert fault(model, dead) is None
    alike = model.get()
    alike[layer.start : layer.bias] = np.tile(alike[layer.start : layer.start + 20], 64)
    model.set(alike)  # all rows alike from the start, with the biases that the seed gave: the factory's own doing
    assert fault(model, alike) is None


def test_the_bins_of_a_trap_are_those_that_it_has() -> None:
    model = FlatModel(build("mlp", input_shape=(30,), classes=2, hidden=(100,), seed=2))
    assert f"into 50 parts, where {BINS}" in str(fault(model, imprint(model.get(), layers(model)[0], share=0.5)))


def test_an_architecture_has_one_digest_and_another_one_another() -> None:
    def built(**changes: object) -> str:
        settings = {"input_shape": (9,), "classes": 3, "hidden": (5, 4), "activation": "relu", "seed": 1, **changes}
        return architecture(build("mlp", **settings))  # type: ignore[arg-type]

    assert built() == built(seed=2)
    others = [built(activation="tanh"), built(hidden=(4, 5)), built(input_shape=(8,)), built(classes=2)]
    assert len({built(), *others}) == 5
    frozen = build("mlp", input_shape=(9,), classes=3, hidden=(5, 4), seed=1)
    next(frozen.parameters()).requires_grad_(False)
    assert architecture(frozen) != built()
    assert architecture(nn.Sequential(nn.Dropout(0.1))) != architecture(nn.Sequential(nn.Dropout(0.2)))


def test_segments_without_biases_are_no_hidden_layers() -> None:
    module = nn.Sequential(nn.Linear(9, 6, bias=False), nn.ReLU(), nn.Linear(6, 2))
    assert (
        hidden_layers(module, (Segment("0.weight", (6, 9)), Segment("2.weight", (2, 6)), Segment("2.bias", (2,)))) == ()
    )
