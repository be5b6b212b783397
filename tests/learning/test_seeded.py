"""Threads that build models at the same time, as the sites of one process do."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from consilia.core.errors import PlanError
from consilia.learning.models import build


def weights(seed: int) -> torch.Tensor:
    model = build("mlp", input_shape=(20,), classes=3, hidden=(64, 64, 64), seed=seed)
    return torch.cat([part.detach().flatten() for part in model.parameters()])


def test_a_seed_gives_its_weights_whatever_other_threads_draw() -> None:
    alone = [weights(seed) for seed in range(8)]
    before, interval = torch.random.get_rng_state(), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(weights, list(range(8)) * 20))
    finally:
        sys.setswitchinterval(interval)
    assert all(torch.equal(one, alone[number % 8]) for number, one in enumerate(found))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_generator_is_given_back_after_an_error() -> None:
    before = torch.random.get_rng_state()
    with pytest.raises(PlanError):
        build("missing.module:factory", input_shape=(2,), classes=2, seed=1)
    assert torch.equal(torch.random.get_rng_state(), before)
