"""Benches whose plans sum in secret: what each site put in, what came out, and sites that are lost on the way."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.rounds.bench import FEDSGD, Bench, heart
from tests.transport.tpm.software_tpm import software_tpm

from consilia.core.update import ProtocolMessage
from consilia.plan.schema import Plan
from consilia.rounds.gather import Gathered
from consilia.transport.tpm import TpmAttester, measure

SITES = ("Cleveland", "Hungary", "Switzerland", "VA Long Beach")
SECTIONS = {
    "masks": 'mode = "masks"', "rlwe": 'mode = "rlwe"', "paillier": 'mode = "paillier"\nkey_bits = 2048',
    "attested": 'mode = "attested"\npolicy = "policy.toml"',
}  # fmt: skip
REGISTER, CODE = 14, hashlib.sha256(b"the coordinator's code").digest()


def secret(mode: str, *, dropouts: int = 1, training: str = FEDSGD, more: str = "", **rest: Any) -> Plan:
    """Return a plan with a secure sum; `mode` "none" is the same plan in the clear."""
    section = f"\n[secure_sum]\n{SECTIONS[mode]}\ndropouts = {dropouts}\n{more}" if mode != "none" else ""
    return heart(**{"privacy": 'unit = "none"', **rest}, training=training + section)


def write_policy(folder: Path, attester: TpmAttester) -> None:
    """Write the policy that accepts this code on this TPM, where plans look for it."""
    value = hashlib.sha256(hashlib.sha256(bytes(32) + CODE).digest()).hexdigest()
    (folder / "policy.toml").write_text(
        f'kind = "tpm"\nmeasurements = ["sha256:{REGISTER}={value}"]\nmax_age = 3600\nroots = ["{attester.fingerprint}"]\n'
    )


@contextmanager
def attested(folder: Path) -> Iterator[TpmAttester]:
    """Start a TPM that has measured some code, and write the policy that accepts this code."""
    with software_tpm() as path:
        measure(path, REGISTER, CODE)
        with TpmAttester(path, (REGISTER,)) as attester:
            write_policy(folder, attester)
            yield attester


def step_of(task: ProtocolMessage) -> str:
    """Return which step a task is: a stage of a sum, or its kind."""
    return str(task.body.get("stage", task.kind))


@dataclass
class Seen:
    """(round, site) -> what a site's pipeline handed over to be summed; round -> what the coordinator learned."""

    put: dict[tuple[int, str], NDArray[Any]] = field(default_factory=dict)
    out: dict[int, Gathered] = field(default_factory=dict)

    def sum(self, number: int, sites: tuple[str, ...] | list[str]) -> NDArray[Any]:
        return np.asarray(sum(self.put[number, site] for site in sites))


def watch(one: Bench) -> Seen:
    """Look over the shoulder of sites and coordinator."""
    seen = Seen()
    for name, site in one.simulation.sites.items():
        half: Any = site._sums
        if half is not None:
            half.update = _spy(seen, name, half.update)
    gatherer: Any = one.coordinator._gatherer
    gather = gatherer.updates

    def updates(number: int, *rest: Any) -> Gathered:
        gathered: Gathered = gather(number, *rest)
        # A copy: what comes of the sum is computed in its place.
        seen.out[number] = replace(gathered, total=None if gathered.total is None else gathered.total.copy())
        return gathered

    gatherer.updates = updates
    return seen


def _spy(seen: Seen, name: str, update: Any) -> Any:
    def spied(task: ProtocolMessage, vector: NDArray[Any], *rest: Any) -> bytes:
        seen.put[task.round, name] = vector.copy()
        return bytes(update(task, vector, *rest))

    return spied


def lose(one: Bench, sites: tuple[str, ...], step: str, number: int, *, answered: bool) -> None:
    """Lose these sites once, at a step of a round's update: the task before it arrives, or the answer on its way."""
    left = set(sites)

    def hit(site: str, task: ProtocolMessage) -> bool:
        fits = task.round == number and step_of(task) == step and task.body.get("purpose") != "evaluation"
        if not (fits and site in left):
            return False
        left.discard(site)
        return True

    if answered:
        one.transport.tamper = lambda site, _n, frame: [] if hit(site, one.transport.asked[site]) else [frame]
    else:
        one.transport.unheard = hit
