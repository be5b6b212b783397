"""Weights from a file: taken whole or not at all, and every fault told at once."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from consilia.core.errors import PlanError
from consilia.learning.flat import FlatModel
from consilia.learning.initial import load_initial
from consilia.learning.models import build


def net(seed: int, classes: int = 3) -> nn.Module:
    return build("mlp", input_shape=(5,), classes=classes, hidden=(7, 4), seed=seed)


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "weights.safetensors"
    safetensors.torch.save_file(net(1).state_dict(), path)
    return path


def save(path: Path, tensors: dict[str, Tensor]) -> Path:
    safetensors.torch.save_file(tensors, path)
    return path


def test_all_weights_are_taken_and_the_file_is_named_by_its_digest(file: Path) -> None:
    model = FlatModel(net(2))
    found = load_initial(file, model)
    np.testing.assert_array_equal(model.get(), FlatModel(net(1)).get())
    assert found.left_out == ()
    assert found.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert torch.equal(model.module(torch.ones(2, 5)), net(1)(torch.ones(2, 5)))  # still one storage


def test_a_head_for_other_classes_is_left_as_the_seed_made_it_when_asked(file: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"'5.weight' of shape \(2, 4\); got shape \(3, 4\)"):
        load_initial(file, FlatModel(net(2, classes=2)))
    backbone = {name: tensor for name, tensor in net(1).state_dict().items() if not name.startswith("5.")}
    half = net(1).state_dict()
    del half["5.bias"]
    for path, classes in (
        (file, 2), (save(tmp_path / "b", backbone), 3), (save(tmp_path / "h", half), 3),
    ):  # fmt: skip
        model = FlatModel(net(2, classes))
        seeded, head = model.get(), model.part("head")
        assert load_initial(path, model, other_head=True).left_out == ("5.weight", "5.bias")
        np.testing.assert_array_equal(model.get()[head], seeded[head])
        np.testing.assert_array_equal(model.get()[: head.start], FlatModel(net(1)).get()[: head.start])


def test_a_fitting_head_is_taken_even_when_another_were_allowed(file: Path) -> None:
    model = FlatModel(net(2))
    assert load_initial(file, model, other_head=True).left_out == ()
    np.testing.assert_array_equal(model.get(), FlatModel(net(1)).get())


def test_every_fault_is_told_and_nothing_is_taken(tmp_path: Path) -> None:
    state = net(1).state_dict()
    del state["1.bias"]
    state["3.weight"] = torch.zeros(4, 6)
    state["3.bias"] = torch.full((4,), float("nan"))
    state["5.weight"] = torch.zeros(3, 4, dtype=torch.int64)
    state["extra"] = torch.zeros(1)
    model = FlatModel(net(2))
    before = model.get()
    with pytest.raises(PlanError) as caught:
        load_initial(save(tmp_path / "w", state), model, other_head=True)
    told = [str(problem) for problem in caught.value.problems]
    assert len(told) == 5
    for part in ("'1.bias'", "'3.weight'", "finite numbers in tensor '3.bias'", "torch.int64", "'extra'"):
        assert sum(part in line for line in told) == 1
    np.testing.assert_array_equal(model.get(), before)


def test_half_precision_is_cast_and_a_number_beyond_the_models_type_is_no_number(tmp_path: Path) -> None:
    half = {name: tensor.bfloat16() for name, tensor in net(1).state_dict().items()}
    model = FlatModel(net(2))
    load_initial(save(tmp_path / "half", half), model)
    np.testing.assert_allclose(model.get(), FlatModel(net(1)).get(), rtol=0.01)
    wide = {name: tensor.double() for name, tensor in net(1).state_dict().items()}
    wide["1.bias"][0] = 1e300
    with pytest.raises(PlanError, match="finite"):
        load_initial(save(tmp_path / "wide", wide), model)


def test_statistics_travel_and_what_stays_at_the_site_may_be_left_out(tmp_path: Path) -> None:
    module = normed()
    module(torch.randn(20, 5))
    state = module.state_dict()
    model = FlatModel(normed())
    load_initial(save(tmp_path / "all", state), model)
    for name, tensor in model.module.state_dict().items():
        assert torch.equal(tensor, state[name]), name
    shared = {name: tensor for name, tensor in state.items() if not name.startswith("1.")}
    load_initial(save(tmp_path / "shared", shared), FlatModel(normed(), "norm"))
    with pytest.raises(PlanError, match="running_mean"):
        load_initial(tmp_path / "shared", FlatModel(normed()))


@pytest.mark.parametrize("data", [b"", b"no tensors in here, but more than eight bytes", b"\xff" * 64])
def test_other_files_are_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "other").write_bytes(data)
    with pytest.raises(PlanError, match="a safetensors file at"):
        load_initial(tmp_path / "other", FlatModel(net(2)))


def test_a_cut_file_a_folder_a_missing_and_a_huge_file_are_refused(file: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    cut.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(PlanError, match="a safetensors file"):
        load_initial(cut, FlatModel(net(2)))
    for path, match in ((tmp_path, "directory"), (tmp_path / "none", "No such file")):
        with pytest.raises(PlanError, match=match):
            load_initial(path, FlatModel(net(2)))
    huge = tmp_path / "huge"
    with huge.open("wb") as stream:
        stream.truncate(1 << 40)  # sparse: no disk is used
    with pytest.raises(PlanError, match="at most 268,"):
        load_initial(huge, FlatModel(net(2)))


def test_a_pickle_is_never_opened(tmp_path: Path) -> None:
    torch.save(net(1).state_dict(), tmp_path / "weights.pt")
    with pytest.raises(PlanError, match="a safetensors file"):
        load_initial(tmp_path / "weights.pt", FlatModel(net(2)))


def test_what_is_no_plain_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, match in ((tmp_path / "pipe", "a pipe"), (Path("/dev/zero"), "device"), (Path("a\0b"), "null")):
        with pytest.raises(PlanError, match=match):
            load_initial(path, FlatModel(net(2)))


def test_a_model_that_is_all_head_takes_its_weights_or_refuses(tmp_path: Path) -> None:
    def one_layer() -> FlatModel:
        return FlatModel(build("logistic", input_shape=(5,), classes=3, hidden=(), seed=0))

    zeros = {name: torch.zeros_like(tensor) for name, tensor in one_layer().module.state_dict().items()}
    model = one_layer()
    assert load_initial(save(tmp_path / "fits", zeros), model, other_head=True).left_out == ()
    assert not model.get().any()
    for name, state in (("none", {}), ("shapes", {name: torch.zeros(2, 2) for name in zeros})):
        with pytest.raises(PlanError, match="of shape"):
            load_initial(save(tmp_path / name, state), one_layer(), other_head=True)


def test_thousands_of_faults_are_counted_and_not_listed(tmp_path: Path) -> None:
    other = {f"w{i}": torch.zeros(1) for i in range(3000)}
    with pytest.raises(PlanError, match="2986 more") as caught:
        load_initial(save(tmp_path / "other", other), FlatModel(net(2)))
    assert len(caught.value.problems) == 21
