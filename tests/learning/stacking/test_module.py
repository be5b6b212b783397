"""The torch model of a stack answers what the stack's own formulas answer."""

import numpy as np
import pytest
import torch
from tests.learning.stacking.test_stack import SHAPES, WIDTH

from consilia.learning.flat import FlatModel
from consilia.learning.models import problems
from consilia.learning.stacking.module import StackModule
from consilia.learning.stacking.predict import margins


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_its_margin_is_the_stacks(name: str) -> None:
    shape, generator = SHAPES[name], np.random.default_rng(3)
    features = generator.normal(size=(50, WIDTH)).astype(np.float32) * 2
    features[0] = 0
    weights = generator.normal(size=shape.size)
    module = StackModule(shape, 1.5)
    flat = FlatModel(module, "none")
    flat.set(weights.astype(np.float32))
    assert flat.dim == shape.size
    with torch.no_grad():
        logits = module(torch.from_numpy(features.reshape(50, 1, 2, 3)))
    np.testing.assert_allclose(
        (logits[:, 1] - logits[:, 0]).numpy(), margins(shape, weights, features, 1.5), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_it_begins_undecided_and_mixes_no_rows(name: str) -> None:
    module = StackModule(SHAPES[name], 1.0)
    assert not module(torch.ones(3, WIDTH)).any()
    assert problems(module, unit="record", input_shape=(WIDTH,)) == []
