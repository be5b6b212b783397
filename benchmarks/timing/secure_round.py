"""A whole round of many simulated sites, in the clear and under masks: what the protocol costs, and which primitives that is."""

import os
import secrets
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import consilia
from benchmarks.study import PLANS, Json, scratch
from benchmarks.tables import table
from benchmarks.timing.clock import digits, quartiles
from benchmarks.timing.page import spread
from consilia.core.randomness import SecretRng
from consilia.crypto.keys import ExchangeKey
from consilia.crypto.signing import SigningKey, verify
from consilia.secagg import rules

PLAN = PLANS / "adult-open.toml"
MODES = {"clear": (), "masks": ('secure_sum.mode="masks"',)}


def rounds(mode: str, sites: int, count: int) -> Json:
    """Run a plan and return the CPU time of its rounds.

    The first is left out, which pays for what is made once, and the last, which is scored.

    Args:
        mode: "clear" or "masks".
        sites: Of the same rows; all answer in each round.
        count: Rounds that are timed.
    """
    ends: list[float] = []
    told: list[dict[str, int]] = []
    called: dict[str, list[None]] = {
        "signatures": [],
        "agreements": [],
    }  # appending is safe in threads, counting is not
    agree = ExchangeKey.agree

    def verified(*arguments: Any) -> bool:
        called["signatures"].append(None)
        return verify(*arguments)

    def agreed(key: ExchangeKey, peer: bytes, *, who: str) -> bytes:
        called["agreements"].append(None)
        return agree(key, peer, who=who)

    def ended(_: object) -> None:
        ends.append(time.process_time())
        told.append({name: len(calls) for name, calls in called.items()})

    changes = [f"sites.count={sites}", f"aggregation.count={sites}", f"training.rounds={count + 2}",
               f"evaluation.every={count + 2}", *MODES[mode]]  # fmt: skip
    with (
        tempfile.TemporaryDirectory(dir=scratch()) as folder,
        patch.dict(os.environ, CONSILIA_HOME=str(Path(folder) / "home")),
        patch.object(rules, "verify", verified),
        patch.object(ExchangeKey, "agree", agreed),
    ):
        result = consilia.run(consilia.load(PLAN, set=changes), out=Path(folder) / "run", on_round=ended)
    spent = [1e3 * (end - begin) for begin, end in pairwise(ends[:-1])]
    calls = {name: (told[-2][name] - told[0][name]) // count for name in called}
    accuracy = digits(float(str(result.summary["accuracy"])))
    return {
        "cpu_ms": quartiles(spent),
        "rounds": count,
        "parameters": int(result.model.size),
        "accuracy": accuracy,
        **calls,
    }


def primitives(times: int) -> Json:
    """Return the CPU time of one signature check and of one key agreement."""
    rng = SecretRng(secrets.token_bytes(32))
    key, mine, other = SigningKey.draw(rng), ExchangeKey.draw(rng), ExchangeKey.draw(rng)
    text = rng.token(200)
    public, signature, peer = key.public, key.sign(text), other.public
    taken: dict[str, list[float]] = {"signatures": [], "agreements": []}
    for _ in range(times):
        begun = time.process_time()
        verify(public, signature, text)
        between = time.process_time()
        mine.agree(peer, who="a peer")
        taken["agreements"].append(1e6 * (time.process_time() - between))
        taken["signatures"].append(1e6 * (between - begun))
    return {f"{name}_us": digits(quartiles(values)["median"]) for name, values in taken.items()}


def section(result: Json) -> str:
    """Return the section of SECAGG.md."""
    how, where, clear, masks = result["made"], result["machine"], result["clear"], result["masks"]
    parts = {name: masks[name] * result[f"{name}_us"] / 1e3 for name in ("signatures", "agreements")}
    whole = masks["cpu_ms"]["median"]
    rows = [
        ["in the clear", spread(clear["cpu_ms"]), "", ""],
        ["under masks", spread(masks["cpu_ms"]), *(
            f"{masks[name]:,} x {result[f'{name}_us']:.3g} us = {100 * taken / whole:.0f} %" for name, taken in parts.items()
        )],
    ]  # fmt: skip
    protocol, each = 1 - clear["cpu_ms"]["median"] / whole, whole / result["sites"]
    return f"""## A whole round of {result["sites"]} simulated sites

Written by `{how["command"]}`; commit `{how["commit"][:12]}`, {how["date"]}, {how["seconds"]:.0f} s, one thread, load average
{where["load_average"][0]:g} on {where["cores"]} cores shared with other work ({where["processor"]}).

`{PLAN.name}` with {result["sites"]} sites and {masks["parameters"]} parameters: all of a round in one process, with training,
ledgers and frames; rounds that are scored are left out. With so small a model {100 * protocol:.0f} % of a round under masks is
protocol. What {result["sites"]} sites would do on as many machines at once, {each:.0f} ms each, one processor does here in turn;
each checks every other's signatures itself, in a simulation, too.

{table(["Round", "CPU, ms", "Signatures checked, share of the time", "Keys agreed, share of the time"], rows)}
"""
