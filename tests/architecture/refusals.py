"""Run by test_optimised.py, with and without `python -O`: prints what each forbidden call came to."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from consilia.core.errors import ConsiliaError
from consilia.core.randomness import SecretRng
from consilia.core.spec import Adjacency, Segment, UpdateSpec
from consilia.core.update import Update
from consilia.core.wire import decode, encode
from consilia.dp.event import Event
from consilia.dp.ledger import Allotment, admit, admit_charge
from consilia.dp.mechanism import GaussianMechanism
from consilia.dp.sensitivity import effective_multiplier
from consilia.dp.truncation import truncation_delta
from consilia.federation.simulation import prepare
from consilia.learning.work import LocalWork
from consilia.pipeline.chain import Chain
from consilia.pipeline.clip import Clip
from consilia.pipeline.noise import ServerNoise, SiteNoise
from consilia.plan.load import from_text

SPEC, EVENT, RNG = UpdateSpec((Segment("w", (3,)),)), Event(1.0), SecretRng(bytes(32))
UPDATE = Update(np.zeros(3, np.float32), 1.0)
ONE_CHARGE = Allotment("r", "p", ((EVENT, 1),), 1.0, 1e-5, Adjacency.ADD_REMOVE, "server")
FULL = "noise_multiplier = 1.0\ndelta = 1e-5\nclip_norm = 1.0"


def checked(privacy: str, more: str = "") -> None:
    training = 'batch = "full"\nlocal_steps = 2'
    prepare(from_text(f'[data]\nsource = "heart"\n[training]\n{training}\n[privacy]\n{privacy}\n{more}'), Path.cwd())


CASES: dict[str, Callable[[], object]] = {
    "noise on NaN": lambda: GaussianMechanism(1.0, 1.0).release(np.array([math.nan]), RNG),
    "negative noise": lambda: GaussianMechanism(-1.0, 1.0),
    "noise without a clip": lambda: Chain((SiteNoise(1.0, 1.0),)).contract(SPEC),
    "server noise without a clip": lambda: Chain((ServerNoise(1.0, 1.0),)).contract(SPEC),
    "noise scaled for less": lambda: Chain((Clip(((3, 2.0),)), SiteNoise(1.0, 1.0))).contract(SPEC),
    "a cap of nothing": lambda: truncation_delta(10, 0.5, 0, 1, 1.0),
    "more than the largest": lambda: effective_multiplier(1.0, own=2.0, largest=1.0),
    "record noise without a clip": lambda: LocalWork(noise_multiplier=1.0),
    "over the limit": lambda: admit([], ONE_CHARGE, 0.5),
    "a charge too many": lambda: admit_charge(ONE_CHARGE, {EVENT.digest: 1}, EVENT),
    "an update on the wire": lambda: encode(UPDATE),  # type: ignore[arg-type]
    "garbage from the wire": lambda: decode(b"garbage!" * 4, who="test"),
    "a short key": lambda: SecretRng(b"short"),
    "record noise at the server, many steps": lambda: checked(f'unit = "record"\nnoise = "server"\n{FULL}'),
    "against the server": lambda: checked(f'unit = "site"\nnoise = "server"\nagainst = "server"\n{FULL}'),
    "no clip norm": lambda: checked('unit = "record"\nepsilon = 1.0\ndelta = 1e-5'),
    "no delta": lambda: checked('unit = "record"\nepsilon = 1.0\nclip_norm = 1.0'),
    "a private row in a private head": lambda: checked(f'unit = "record"\n{FULL}', '[model]\nlocal_layers = "head"'),
}


def main() -> None:
    print("optimised" if not __debug__ else "plain")
    for name, call in CASES.items():
        try:
            call()
            print(f"{name}: accepted")
        except (ConsiliaError, ValueError, AttributeError) as error:
            print(f"{name}: {type(error).__name__}")


if __name__ == "__main__":
    main()
