"""A private step over a bare PyTorch step, beside every way Opacus has; peak memory; and whether all clip to the same sum."""

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (the name torch documents)

from benchmarks.timing.clock import digits, quartiles
from consilia.core.canonical import Json
from consilia.core.randomness import SecretRng
from consilia.learning.flat import FlatModel
from consilia.learning.models import build
from consilia.learning.optimizer import start_optimizer
from consilia.learning.private import private_gradient
from consilia.learning.work import LocalWork

Step = Callable[[], object]
RATE = 0.01


@dataclass(frozen=True)
class Case:
    """A model and a batch of random numbers.

    Attributes:
        model: Name in the catalogue.
        shape: Of a row.
        classes: Number of classes.
        rows: Of the batch.
        goal: Most that a private step may cost, in bare steps.
        steps: Taken in one go, so that the clock has something to measure.
        weighed: Whether a step's memory is large enough to be told from the process's own.
    """

    model: str
    shape: tuple[int, ...]
    classes: int
    rows: int
    goal: float
    steps: int = 1
    weighed: bool = False

    def module(self) -> nn.Module:
        """Return the model, with the same weights every time."""
        return build(self.model, input_shape=self.shape, classes=self.classes, hidden=(64,), seed=1)

    def batch(self, rows: int | None = None) -> tuple[Tensor, Tensor]:
        """Return features and labels."""
        generator = torch.Generator().manual_seed(5)
        rows = rows or self.rows
        features = torch.randn(rows, *self.shape, generator=generator)
        return features, torch.randint(0, self.classes, (rows,), generator=generator)


CASES = {
    "mlp 22-64-2, batch 256": Case("mlp", (22,), 2, 256, 1.2, 50),
    "mlp 22-64-2, batch 4096": Case("mlp", (22,), 2, 4096, 1.4, 10, weighed=True),
    "mnist-cnn, batch 256": Case("mnist-cnn", (1, 28, 28), 10, 256, 1.25),
    "mnist-cnn, batch 1024": Case("mnist-cnn", (1, 28, 28), 10, 1024, 1.35, weighed=True),
    "nodule-cnn 32 x 32, batch 64": Case("nodule-cnn", (1, 32, 32), 2, 64, 1.2),
    "nodule-cnn 32 x 32, batch 256": Case("nodule-cnn", (1, 32, 32), 2, 256, 1.3, weighed=True),
}


def bare(module: nn.Module, features: Tensor, labels: Tensor) -> Step:
    """Return a plain step of SGD."""
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(module(features), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def consilia(module: nn.Module, features: Tensor, labels: Tensor) -> Step:
    """Return a private step: clipped sum, noise from AES-CTR, SGD."""
    model = FlatModel(module)
    work = LocalWork(clip_norm=1.0, noise_multiplier=1.0, expected_batch=len(labels), learning_rate=RATE)
    gradient = private_gradient(model, work, features.dim(), SecretRng(bytes(32)))
    move = start_optimizer(model, work)

    def step() -> None:
        gradient(features, labels)
        move()

    return step


def opacus(mode: str) -> Callable[[nn.Module, Tensor, Tensor], Step]:
    """Return how to make a private step of Opacus, as it is meant to be used, without its loader and accountant."""

    def made(module: nn.Module, features: Tensor, labels: Tensor, noise: float = 1.0) -> Step:
        grad_sample, optimizers = import_module("opacus.grad_sample"), import_module("opacus.optimizers")
        plain = torch.optim.SGD(module.parameters(), lr=RATE)
        terms: Any = {"noise_multiplier": noise, "max_grad_norm": 1.0, "expected_batch_size": len(labels)}
        criterion: Any = nn.CrossEntropyLoss()
        if mode == "ghost":
            wrapped = grad_sample.GradSampleModuleFastGradientClipping(
                module, max_grad_norm=1.0, use_ghost_clipping=True
            )
            optimizer = optimizers.DPOptimizerFastGradientClipping(plain, **terms)
            losses = import_module("opacus.utils.fast_gradient_clipping_utils")
            criterion = losses.DPLossFastGradientClipping(wrapped, optimizer, criterion)
        else:
            if mode == "ExpandedWeights":
                wrapped = import_module("opacus.grad_sample.gsm_exp_weights").GradSampleModuleExpandedWeights(module)
            else:
                wrapped = grad_sample.GradSampleModule(module, force_functorch=mode == "functorch")
            optimizer = optimizers.DPOptimizer(plain, **terms)

        def step() -> None:
            optimizer.zero_grad()
            criterion(wrapped(features), labels).backward()
            optimizer.step()

        return step

    return made


OPACUS = ("hooks", "functorch", "ExpandedWeights", "ghost")


def clipping_steps(pairs: int, names: Sequence[str] = tuple(CASES)) -> dict[str, Json]:
    """Time a bare step, a private one, every mode of Opacus and a bare one again, in turns; and weigh them.

    Args:
        pairs: Turns.
        names: Which cases.
    """
    warnings.simplefilter("ignore")  # of Opacus: hooks that it calls non-full, and the like
    return {name: _compare(CASES[name], pairs) for name in names}


def _compare(case: Case, pairs: int) -> dict[str, Json]:
    others = OPACUS if find_spec("opacus") else ()
    makers = {"bare": bare, "consilia": consilia, **{f"opacus {mode}": opacus(mode) for mode in others}, "again": bare}
    batch = case.batch()
    steps = {name: make(case.module(), *batch) for name, make in makers.items()}
    for step in steps.values():
        step()  # what is made once
        step()
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(pairs):
        for name, step in steps.items():
            started = time.process_time()
            for _ in range(case.steps):
                step()
            taken[name].append(1e3 * (time.process_time() - started) / case.steps)
    base = [(a + b) / 2 for a, b in zip(taken["bare"], taken["again"], strict=True)]
    ratios = {
        name: quartiles([a / b for a, b in zip(times, base, strict=True)]) for name, times in taken.items() if name != "again"
    }  # fmt: skip
    fastest = [min(times) for times in zip(*(taken[f"opacus {mode}"] for mode in others), strict=True)] or [
        float("nan")
    ]
    return {
        "rows": case.rows, "goal": case.goal, "pairs": pairs, "threads": torch.get_num_threads(),
        "bare_ms": quartiles(base), "ratio_cpu": ratios["consilia"], "ratios": ratios,
        "quickest_opacus_over_consilia": quartiles([a / b for a, b in zip(fastest, taken["consilia"], strict=bool(others))]),
        "sums_apart": _apart(case, others),
        **({"peak_memory_over_bare": _memory(case, [name for name in makers if name != "again"])} if case.weighed else {}),
    }  # fmt: skip


def _apart(case: Case, modes: Sequence[str]) -> dict[str, float]:
    """Return the largest difference of one coordinate of the clipped mean from Opacus's, without noise."""
    batch = case.batch()
    ours = FlatModel(case.module())
    work = LocalWork(clip_norm=1.0, expected_batch=case.rows)
    private_gradient(ours, work, batch[0].dim(), SecretRng(bytes(32)))(*batch)
    found = {}
    for mode in modes:
        module = case.module()
        opacus(mode)(module, *batch, 0.0)()  # type: ignore[call-arg]
        theirs = [p.grad for p in module.parameters() if p.grad is not None]
        mine = [ours.parameters[name].grad for name, _ in module.named_parameters()]
        found[mode] = digits(
            max(float((a - b).abs().max()) for a, b in zip(theirs, mine, strict=True) if b is not None)
        )
    return found


def _memory(case: Case, names: Sequence[str]) -> dict[str, float]:
    """Return by how much a step's peak of resident memory grows, each in a process of its own, over the bare step's."""
    place = next(name for name, one in CASES.items() if one == case)
    code = "import sys; from benchmarks.timing.clipping import grown; print(grown(*sys.argv[1:]))"
    found = {
        name: float(subprocess.run(
            [sys.executable, "-c", code, place, name], stdout=subprocess.PIPE, text=True, check=True, env=dict(os.environ),
        ).stdout)
        for name in names
    }  # fmt: skip
    return {"bare_mb": digits(found["bare"]), **{name: digits(found[name] / found["bare"]) for name in names}}


def grown(case_name: str, name: str) -> float:
    """Return the growth of peak resident memory in MB over three steps, after a step on a few rows (Linux)."""
    warnings.simplefilter("ignore")
    case = CASES[case_name]
    make = bare if name == "bare" else consilia if name == "consilia" else opacus(name.split()[1])
    make(case.module(), *case.batch(4))()
    batch, module = case.batch(), case.module()
    step = make(module, *batch)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from what is resident now
    before = _peak()
    for _ in range(3):
        step()
    return _peak() - before


def _peak() -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1e3


if __name__ == "__main__":
    json.dump(clipping_steps(int(sys.argv[1]), sys.argv[2:] or tuple(CASES)), sys.stdout, indent=1)
