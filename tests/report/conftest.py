"""Runs as plain values, made by hand: what a journal would hold."""

import copy
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from consilia.plan.facts import Facts
from consilia.plan.load import canonical, from_text
from consilia.plan.run_plan import ADVERSARIES
from consilia.report.document import Document

SITES = {"Cleveland": 199, "Hungary": 172, "Switzerland": 30, "VA Long Beach": 85}
TEST = {"Cleveland": 104, "Hungary": 89, "Switzerland": 16, "VA Long Beach": 45}

PLAN = """
[run]
name = "heart"
[data]
source = "heart"
split = "exact"
[sites]
counts = "public"
[training]
rounds = 40
batch = "poisson"
sampling_rate = 0.1
learning_rate = 0.5
[privacy]
unit = "record"
epsilon = 1.0
delta = 1e-3
delta_reason = "the data are public and the smallest centre holds 30 patients"
clip_norm = 1.0
[evaluation]
metrics = "public"
"""


def facts(**changes: object) -> Facts:
    """Numbers of a record-level run with noise at the sites."""
    sites = [
        {
            "name": name, "count": count, "weight": float(count), "inclusion": 1.0, "participations": 40,
            "phases": [
                {"participations": 40, "steps": 10, "expected_batch": 0.1 * count, "batch_cap": min(count, 60)}
            ], "extra_delta": 3.1e-8, "evaluations": 0,
            "accountant": "PLD (dp-accounting 0.6.0)", "epsilon": dict.fromkeys(ADVERSARIES, 0.99987),
        }
        for name, count in SITES.items()
    ]  # fmt: skip
    values = {
        "version": "0.1.0",
        "digest": "9f1c2d" * 10 + "abcd", "unit": "record", "adjacency": "add-remove", "noise": "site", "against": "server",
        "epsilon": 0.99987, "delta": 1e-3, "delta_reason": "the data are public and the smallest centre holds 30 patients",
        "accountant": "PLD (dp-accounting 0.6.0)", "noise_multiplier": 4.2131, "clipping": "flat",
        "control_clip_norm": None, "reproducible": False, "model": "logistic", "initial_source": None, "views": 0,
        "stack": None, "secure": None,
        "messages": {"quantize_bits": None, "random_k": None, "top_k": None, "kept": 46},
        "phases": [
            {"first": 1, "last": 40, "train": "all", "noise_multiplier": 4.2131, "clip_norm": 1.0, "sampling_rate": 0.1}
        ],
        "algorithm": "fedavg", "batch": "poisson", "selection": "all",
        "cohort": 4, "weights": "n", "metrics": "public", "evaluation_noise_multiplier": None, "population": "heart",
        "max_epsilon": None, "parameters": 46, "rounds": 40, "sites": sites,
        "warnings": ["delta 0.001 is above a tenth of 1/30, the smallest site's count"],
    }  # fmt: skip
    return cast("Facts", copy.deepcopy(values | changes))


def records(rounds: int = 40, *, hidden: bool = False) -> list[dict[str, Any]]:
    """Rounds of which 7 and 8 were skipped, and in which Switzerland dropped out twice."""
    rng = np.random.default_rng(3)
    base = {"Cleveland": 0.81, "Hungary": 0.86, "Switzerland": 0.72, "VA Long Beach": 0.69}
    found: list[dict[str, Any]] = []
    for number in range(1, rounds + 1):
        rise = 1 - np.exp(-number / 6)
        lost = {"Switzerland": "late"} if number in (7, 20) else {}
        status = "skipped" if number in (7, 8) else "counted"
        answered = [site for site in SITES if site not in lost]
        score = {
            site: float(np.clip(0.5 + (goal - 0.5) * rise + rng.normal(0, 0.012), 0, 1)) for site, goal in base.items()
        }
        overall = sum(score[site] * TEST[site] for site in SITES) / sum(TEST.values())
        pairs = {f"{a}|{b}": float(rng.normal(0.35, 0.25)) for i, a in enumerate(answered) for b in answered[i + 1 :]}
        scored = status == "counted" and not hidden
        found.append({
            "round": number, "status": status, "reason": "2 of 4 answers; quorum 3" if status == "skipped" else None,
            "asked": sorted(SITES), "answered": answered, "dropped": lost,
            "accuracy": overall if scored else None, "loss": 0.5 if scored else None,
            "accuracy_mean_over_sites": float(np.mean(list(score.values()))) if scored else None,
            "accuracy_variance": float(np.var(list(score.values()))) if scored else None,
            "worst_site": min(score, key=score.__getitem__) if scored else None,
            "worst_accuracy": min(score.values()) if scored else None,
            "per_site": {
                site: {"n": TEST[site], "accuracy": score[site], "loss": 0.5} if scored else "hidden" for site in SITES
            } if status == "counted" else {},
            "train_loss": None,
            "update_norms": {
                site: float(2.4 * np.exp(-number / 30) + rng.normal(0, 0.15)) + 1.2 * (site == "Switzerland") for site in answered
            }
            if status == "counted" and not hidden else "hidden",
            "cosine": {"mean": float(np.mean(list(pairs.values()))), "pairs": pairs}
            if status == "counted" and not hidden else "hidden",
            "aggregate_norm": float(1.6 * np.exp(-number / 30)) if status == "counted" else None,
            "bytes_up": 4 * 700, "bytes_down": 8 * 700, "seconds": 0.21,
            "epsilon_spent": float(0.99987 * min(1, 0.12 + 0.88 * number / rounds)), "epsilon_budget": 0.99987,
        })  # fmt: skip
    return found


def result(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The summary that goes with the records."""
    last = rows[-1]
    keys = ("accuracy", "accuracy_mean_over_sites", "accuracy_variance", "loss", "per_site")
    return {key: last[key] for key in keys} | {
        "run": "heart-20260104-101500-a1b2c3", "status": "done", "reason": None,
        "epsilon": 0.99987, "epsilon_against": dict.fromkeys(ADVERSARIES, 0.99987), "against": "server", "delta": 1e-3,
        "unit": "record", "adjacency": "add-remove", "accountant": "PLD (dp-accounting 0.6.0)", "noise_multiplier": 4.2131,
        "rounds": len(rows), "bytes_up": 112_000, "bytes_down": 224_000, "seconds": 8.4, "reproducible": False,
        "warnings": [], "ledger_heads": {site: f"{index:x}7c0ffee5" * 8 for index, site in enumerate(SITES, 1)},
        "plan_digest": "9f1c2d" * 10 + "abcd",
    }  # fmt: skip


def document(*, plan: str = PLAN, hidden: bool = False, finished: bool = True, **changes: object) -> Document:
    """A whole run; `changes` go to its facts."""
    rows = records(hidden=hidden)
    config = cast("dict[str, Any]", canonical(from_text(plan)))
    done = result(rows) if finished else None
    return Document(
        "heart-20260104-101500-a1b2c3", "done" if finished else "running", None, config, facts(**changes), rows, done
    )


@pytest.fixture
def make_document() -> Callable[..., Document]:
    """Builds documents."""
    return document
