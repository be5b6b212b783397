"""The flat vector: what travels, what stays, and that the module sees both."""

import numpy as np
import pytest
import torch
from torch import nn

from consilia.core.errors import PlanError, ProtocolError, StoreError
from consilia.core.randomness import SecretRng, SharedSeed
from consilia.learning.flat import FlatModel
from consilia.learning.local import train
from consilia.learning.work import LocalWork


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.GroupNorm(1, 2), nn.ReLU(), nn.Flatten(), nn.LayerNorm(8),
        nn.Linear(8, 2),
    )  # fmt: skip


def names(model: FlatModel) -> list[str]:
    return [segment.name for segment in model.segments]


def test_vector_goes_in_and_out_and_reaches_the_module() -> None:
    module = net()
    before = module(torch.ones(3, 1, 4, 4))
    model = FlatModel(module)
    vector = model.get()
    assert vector.shape == (model.dim,) == (sum(s.size for s in model.segments),)
    assert vector.dtype == np.float32
    model.set(np.zeros(model.dim, np.float32))
    assert not module(torch.ones(3, 1, 4, 4)).any()
    model.set(vector)
    torch.testing.assert_close(module(torch.ones(3, 1, 4, 4)), before)
    assert all(p.grad is not None and p.grad.data_ptr() >= model.grad.data_ptr() for p in module.parameters())


def test_segments_describe_the_vector() -> None:
    module = net()
    model = FlatModel(module)
    state, position = module.state_dict(), 0
    for segment in model.segments:
        part = model.get()[position : position + segment.size].reshape(segment.shape)
        np.testing.assert_array_equal(part, state[segment.name].numpy())
        position += segment.size
    assert names(model)[-2:] == ["1.running_mean", "1.running_var"]
    assert set(model.local_state()) == {"1.num_batches_tracked"}


def test_fedbn_keeps_norm_layers_and_their_statistics_at_the_site() -> None:
    model = FlatModel(net(), "norm")
    assert names(model) == ["0.weight", "0.bias", "6.weight", "6.bias"]
    assert {"1.weight", "1.running_mean", "2.bias", "5.weight"} <= set(model.local_state())


def test_head_stays_at_the_site() -> None:
    model = FlatModel(net(), "head")
    assert not [name for name in names(model) if name.startswith("6.")]
    assert {"6.weight", "6.bias"} <= set(model.local_state())


@pytest.mark.parametrize("local", ["norm", "head"])
@pytest.mark.parametrize("algorithm", ["fedavg", "fedsgd"])
def test_local_layers_are_trained_kept_and_taken_up_again(local: str, algorithm: str) -> None:
    module = net()
    model = FlatModel(module, local)  # type: ignore[arg-type]
    start, before = model.get(), model.local_state()
    features, labels = torch.randn(8, 1, 4, 4), torch.arange(8) % 2
    result = train(
        model, start, features, labels, LocalWork(algorithm=algorithm, proximal_mu=0.1), public=SharedSeed.of(0),  # type: ignore[arg-type]
        secret=SecretRng.reproducible_from(SharedSeed.of(0)), next_batch=lambda: np.arange(8),
    )  # fmt: skip
    assert result.delta.shape == (model.dim,)
    moved = [name for name, value in result.local_state.items() if (value != before[name]).any()]
    assert len(moved) >= 2
    model.load_local(before)
    model.set(start)
    np.testing.assert_equal(model.local_state(), before)
    model.load_local(result.local_state)
    np.testing.assert_equal(model.local_state(), result.local_state)
    np.testing.assert_array_equal(model.get(), start)


def test_tied_weights_travel_once() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    module[1].weight = module[0].weight
    model = FlatModel(module)
    assert model.dim == 9 + 3 + 3
    model.set(np.arange(15, dtype=np.float32))
    assert torch.equal(module[0].weight, module[1].weight)  # type: ignore[arg-type]


def test_frozen_parameters_do_not_travel() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    module[0].requires_grad_(False)
    assert names(FlatModel(module)) == ["1.weight", "1.bias"]


def test_refusals() -> None:
    model = FlatModel(net())
    with pytest.raises(ProtocolError, match="same model"):
        model.set(np.zeros(model.dim + 1, np.float32))
    with pytest.raises(StoreError, match="another model"):
        model.load_local({})
    with pytest.raises(PlanError, match="trainable"):
        FlatModel(nn.Flatten())
    with pytest.raises(PlanError, match="one floating-point type"):
        FlatModel(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()))
    with pytest.raises(PlanError, match="a layer that is shared"):
        FlatModel(nn.Sequential(nn.Linear(2, 2)), "head")
