"""No process ever holds the whole key: every role in a process of its own, and the memory of each searched.

The search is for the bytes themselves, in everything the process can write to, freed memory included: in coefficients and
transformed, as doubles and as integers of every width, and packed as on the wire.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.crypto import rlwe_worker
from tests.crypto.rlwe_worker import Message, text

from consilia.core.randomness import SecretRng
from consilia.crypto.rlwe_keys import KeyShare, contribute
from consilia.crypto.rlwe_ntt import transform
from consilia.crypto.rlwe_parameters import PRIMES, RlweParameters
from consilia.crypto.rlwe_sampling import ternary
from consilia.crypto.rlwe_wire import pack

SITES, THRESHOLD, DIM = 3, 2, 500
ROOT = Path(__file__).parents[2]
EVERYONE = list(range(1, SITES + 1))
COORDINATOR = 0
pytestmark = pytest.mark.skipif(
    not Path("/proc/self/mem").exists(), reason="reads the memory of processes through /proc, which this system has not"
)


def seed(site: int) -> bytes:
    return SecretRng(bytes(32)).derive("rlwe process", site).token(32)


class Role:
    """A process that answers one JSON object with one."""

    def __init__(self, number: int) -> None:
        role = ["coordinator", "0"] if number == COORDINATOR else ["site", str(number)]
        secret = "-" if number == COORDINATOR else seed(number).hex()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.crypto.rlwe_worker", *role, str(SITES), str(THRESHOLD), secret],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    def __call__(self, do: str, **message: object) -> Message:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": do, **message}) + "\n")
        self.process.stdin.flush()
        answer: Message = json.loads(self.process.stdout.readline())
        return answer

    def memory(self) -> bytes:
        """Return all that the process can write to, without the pages that are all zeros."""
        place = Path("/proc") / str(self.process.pid)
        found = b""
        with open(place / "mem", "rb", buffering=0) as mem:
            for line in (place / "maps").read_text().splitlines():
                span, rights = line.split()[:2]
                start, end = (int(address, 16) for address in span.split("-"))
                if rights.startswith("rw") and "[v" not in line:
                    mem.seek(start)
                    pages = np.frombuffer(mem.read(end - start), np.uint64).reshape(-1, 512)
                    found += pages[pages.any(axis=1)].tobytes()
        return found

    def holds(self, needles: dict[str, bytes]) -> list[str]:
        memory = self.memory()
        return [what for what, needle in needles.items() if needle in memory]


@pytest.fixture(scope="module")
def roles() -> Iterator[dict[int, Role]]:
    made = {number: Role(number) for number in (COORDINATOR, *EVERYONE)}
    yield made
    for role in made.values():
        role.process.kill()
        role.process.communicate()


def coefficients(what: str, values: NDArray[np.int64]) -> dict[str, bytes]:
    """Return how small coefficients can lie in memory: 64 of them, from the middle."""
    some = values.ravel()[2000:2064]
    kinds = {kind: some.astype(kind).tobytes() for kind in ("f8", "f4", "i8", "i4", "i2", "i1")}
    unsigned = {f"residues {kind}": (some % PRIMES[0]).astype(kind).tobytes() for kind in ("f8", "u8", "u4")}
    return {f"{what}, coefficients {kind}": found for kind, found in {**kinds, **unsigned}.items()}


def residues(what: str, values: NDArray[np.integer], p: int) -> dict[str, bytes]:
    """Return how residues modulo a prime can lie in memory."""
    some = values.ravel()[2000:2064].astype(np.int64)
    centred = np.where(some > p // 2, some - p, some)
    kinds = {kind: some.astype(kind).tobytes() for kind in ("f8", "u8", "u4")}
    signed = {f"centred {kind}": centred.astype(kind).tobytes() for kind in ("f8", "i8", "i4")}
    packed = {"packed": pack(np.resize(some, (1, 64, 64)))[: 64 * 30 // 8]}
    return {f"{what}, residues {kind}": found for kind, found in {**kinds, **signed, **packed}.items()}


def secrets() -> tuple[dict[str, bytes], dict[int, dict[str, bytes]], dict[int, dict[str, bytes]]]:
    """Return what to look for: the whole key, each site's part of it, each site's share of it."""
    parameters = RlweParameters(SITES, THRESHOLD, SITES, 1000, 2)
    parts = {site: ternary(1, SecretRng(seed(site)).derive("key")) for site in EVERYONE}
    made = {
        site: contribute(parameters, site, rlwe_worker.RUN, SecretRng(seed(site)).derive("key")) for site in EVERYONE
    }
    shares = {
        to: KeyShare.gather(parameters, to, {site: made[site].shares[to] for site in EVERYONE}) for to in EVERYONE
    }
    p = PRIMES[0]
    ntt = transform(p)
    # The first draw of a contribution is its secret, or the search below would look for nothing: shares 1 and 2 tell.
    whole = np.sum([parts[site] for site in EVERYONE], axis=0)
    two = 2 * shares[1].values[0].astype(np.int64) - shares[2].values[0].astype(np.int64)
    assert (ntt.prime.residues(ntt.forward_small(whole))[0] == two % p).all()

    def forms(what: str, secret: NDArray[np.float64]) -> dict[str, bytes]:
        transformed = ntt.prime.residues(ntt.forward_small(secret))
        return {**coefficients(what, secret.astype(np.int64)), **residues(what, transformed, p)}

    return (
        forms("the whole key", whole),
        {site: forms(f"the part of site {site}", parts[site]) for site in EVERYONE},
        {site: residues(f"the share of site {site}", shares[site].values[0], p) for site in EVERYONE},
    )


def test_no_process_ever_holds_the_key(roles: dict[int, Role]) -> None:
    whole, parts, shares = secrets()

    def search() -> None:
        for number, role in roles.items():
            others = [forms for of in (parts, shares) for site, forms in of.items() if site != number]
            needles = {name: needle for forms in (whole, *others) for name, needle in forms.items()}
            assert role.holds(needles) == [], f"role {number}"

    everyone = {site: roles[site] for site in EVERYONE}
    coordinator = roles[COORDINATOR]
    exchange = {site: role("begin")["exchange"] for site, role in everyone.items()}
    made = {site: role("contribute", exchange=exchange) for site, role in everyone.items()}
    publics, commitments = ({site: made[site][name] for site in EVERYONE} for name in ("public", "commitment"))
    for site, role in everyone.items():
        sealed = {sender: made[sender]["sealed"][str(site)] for sender in EVERYONE}
        coordinator("relay", messages={"sealed": sealed, "publics": publics, "commitments": commitments})
        role("gather", sealed=sealed, publics=publics, commitments=commitments)
        assert role.holds(shares[site])  # the search finds what is there
    search()

    vectors = np.random.default_rng(1).integers(-1000, 1001, (SITES, DIM))
    payloads = {site: role("encrypt", values=vectors[site - 1].tolist())["payload"] for site, role in everyone.items()}
    what = {"dim": DIM, "contributors": EVERYONE, "decrypters": [1, 3]}
    masks = coordinator("add", payloads=payloads, dim=DIM)["masks"]
    answers = {site: roles[site]("partial", masks=masks, **what)["answer"] for site in (1, 3)}
    assert coordinator("combine", answers=answers, **what)["values"] == vectors.sum(axis=0).tolist()
    search()

    name, needle = next(iter(whole.items()))
    coordinator("hold", what=text(needle))
    assert coordinator.holds(whole) == [name]  # and the search above could have failed
