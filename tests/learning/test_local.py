"""Local work equals textbook loops; batches come from the caller; nothing else moves."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from consilia.core.randomness import SecretRng, SharedSeed
from consilia.learning import gradient
from consilia.learning.flat import FlatModel
from consilia.learning.local import LocalResult, NextBatch, train
from consilia.learning.models import build
from consilia.learning.work import LocalWork

SECRET = SecretRng.reproducible_from(SharedSeed.of(0))


def rows(count: int, width: int = 5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    return torch.randn(count, width, generator=generator), torch.randint(0, 3, (count,), generator=generator)


def batches() -> Callable[[], NDArray[np.int64]]:
    rng = np.random.default_rng(5)

    def next_batch() -> NDArray[np.int64]:
        return rng.permutation(20)[:6]

    return next_batch


def mlp() -> nn.Module:
    return build("mlp", input_shape=(5,), classes=3, hidden=(7, 4), seed=2)


def run(
    module: nn.Module, work: LocalWork, features: Tensor, labels: Tensor, next_batch: NextBatch | None = None
) -> LocalResult:
    model = FlatModel(module)
    return train(
        model, model.get(), features, labels, work, secret=SECRET, public=SharedSeed.of(0),
        next_batch=next_batch or batches(),
    )  # fmt: skip


def flat(tensors: Iterator[nn.Parameter]) -> NDArray[np.float32]:
    values: NDArray[np.float32] = torch.cat([t.detach().flatten() for t in tensors]).numpy()
    return values


@pytest.mark.parametrize(
    ("work", "optimizer"),
    [
        (LocalWork(learning_rate=0.3), lambda p: torch.optim.SGD(p, lr=0.3)),
        (LocalWork(momentum=0.9), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
        (LocalWork(weight_decay=0.2), lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.2)),
        (LocalWork(optimizer="adam", learning_rate=0.01), lambda p: torch.optim.Adam(p, lr=0.01)),
    ],
)
@pytest.mark.parametrize("steps", [1, 12])
def test_local_optimizers_equal_torch(
    work: LocalWork, optimizer: Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer], steps: int
) -> None:
    features, labels = rows(20)
    plain = mlp()
    start, reference, draw = flat(plain.parameters()), optimizer(plain.parameters()), batches()
    losses = []
    for _ in range(steps):
        index = torch.from_numpy(draw())
        loss = F.cross_entropy(plain(features[index]), labels[index])
        losses.append(loss.item())
        reference.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        reference.step()
    result = run(mlp(), LocalWork(**{**work.__dict__, "steps": steps, "batch": "fixed"}), features, labels, batches())
    np.testing.assert_allclose(result.delta, flat(plain.parameters()) - start, atol=2e-6)
    assert result.loss == pytest.approx(np.mean(losses), rel=1e-5)


def test_two_rounds_start_afresh() -> None:
    features, labels = rows(20)
    model, public = FlatModel(mlp()), SharedSeed.of(0)
    start, work = model.get(), LocalWork(steps=4, momentum=0.9, optimizer="sgd")
    first, second = (
        train(model, start, features, labels, work, secret=SECRET, public=public, next_batch=batches()).delta
        for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)


def test_proximal_term_pulls_towards_the_start() -> None:
    features, labels = rows(20)
    mu, rate = 0.7, 0.2
    plain = mlp()
    anchor = [p.detach().clone() for p in plain.parameters()]
    for _ in range(6):
        plain.zero_grad()
        penalty = sum(((p - a) ** 2).sum() for p, a in zip(plain.parameters(), anchor, strict=True))
        (F.cross_entropy(plain(features), labels) + mu / 2 * penalty).backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            for p in plain.parameters():
                assert p.grad is not None
                p.sub_(rate * p.grad)
    expected = flat(plain.parameters()) - flat(iter(nn.ParameterList(anchor)))
    result = run(mlp(), LocalWork(steps=6, learning_rate=rate, proximal_mu=mu), features, labels)
    np.testing.assert_allclose(result.delta, expected, atol=1e-6)
    lengths = [
        float(np.linalg.norm(run(mlp(), LocalWork(steps=30, proximal_mu=m), features, labels).delta))
        for m in (0.0, 0.1, 1.0, 5.0)
    ]
    assert lengths == sorted(lengths, reverse=True)


def test_fedsgd_returns_minus_the_mean_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = rows(20)
    plain = mlp()
    F.cross_entropy(plain(features), labels).backward()  # type: ignore[no-untyped-call]
    grads = [p.grad for p in plain.parameters() if p.grad is not None]
    expected = -torch.cat([g.flatten() for g in grads]).numpy()
    work = LocalWork(algorithm="fedsgd")
    np.testing.assert_allclose(run(mlp(), work, features, labels).delta, expected, atol=1e-6)
    monkeypatch.setattr(gradient, "_ELEMENTS_AT_ONCE", 5 * 3)  # three rows a pass
    in_parts = run(mlp(), work, features, labels)
    np.testing.assert_allclose(in_parts.delta, expected, atol=1e-6)
    assert in_parts.loss == pytest.approx(F.cross_entropy(mlp()(features), labels).item(), rel=1e-5)


def test_site_without_rows_does_not_move() -> None:
    result = run(mlp(), LocalWork(steps=3), *rows(0))
    assert not result.delta.any()
    assert result.loss is None


def test_read_only_vectors_and_batches_are_welcome() -> None:
    features, labels = rows(20)
    model = FlatModel(mlp())
    start = np.frombuffer(model.get().tobytes(), dtype="<f4")
    index = np.frombuffer(np.arange(4).tobytes(), dtype="<i8")
    result = train(
        model, start, features, labels, LocalWork(batch="fixed", steps=2), secret=SECRET,
        public=SharedSeed.of(0), next_batch=lambda: index,
    )  # fmt: skip
    assert result.delta.any()


def test_dropout_follows_the_public_generator_only() -> None:
    features, labels = rows(20)
    deltas = []
    for torch_seed, public_seed in ((1, 1), (2, 1), (2, 2)):
        torch.manual_seed(torch_seed)
        before = torch.random.get_rng_state()
        model = FlatModel(nn.Sequential(mlp()[:-1], nn.Dropout(0.5), mlp()[-1]))  # type: ignore[index]
        public = SharedSeed.of(public_seed)
        deltas.append(
            train(model, model.get(), features, labels, LocalWork(steps=2), secret=SECRET, public=public,
                  next_batch=batches()).delta
        )  # fmt: skip
        assert torch.equal(before, torch.random.get_rng_state())
    np.testing.assert_array_equal(deltas[0], deltas[1])
    assert (deltas[1] != deltas[2]).any()


def test_one_row_is_no_batch_for_batch_normalisation() -> None:
    features, labels = rows(20)
    module = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    result = run(module, LocalWork(batch="fixed"), features, labels, lambda: np.array([3]))
    assert not result.delta.any()
