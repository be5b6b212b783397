"""Hospitals of the Heart table as real sites: folders, keys, configs and policies of their own."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from tests.transport.credentials.world import World

from consilia.federation.config import SiteConfig, read_config
from consilia.federation.site_process import ledger_of, member, party_of
from consilia.federation.site_service import SiteService
from consilia.transport.inprocess import InProcess

HOSPITALS = ("Cleveland", "Hungary", "Switzerland")
POLICY = """
[approval]
mode = "never"
[privacy]
max_delta = 1e-3
[evaluation]
metrics = "public"
"""
PLAN = """
[run]
name = "heart"
reproducible = {reproducible}
[data]
source = "heart"
split = "exact"
test_fraction = 0.34
[sites]
only = ["Cleveland", "Hungary", "Switzerland"]
counts = "public"
[training]
algorithm = "fedsgd"
batch = "full"
rounds = {rounds}
server_optimizer = "momentum"
server_momentum = 0.9
server_learning_rate = 0.1
[privacy]
unit = "record"
noise = "distributed"
epsilon = {epsilon}
delta = 1e-3
delta_reason = "a public table"
clip_norm = 1.0
[secure_sum]
mode = "masks"
[evaluation]
metrics = "public"
"""


def plan_text(*, rounds: int = 2, epsilon: float = 1.0, reproducible: bool = False) -> str:
    """Return a plan of masks and distributed noise."""
    return PLAN.format(rounds=rounds, epsilon=epsilon, reproducible=str(reproducible).lower())


def found(folder: Path, *, names: tuple[str, ...] = HOSPITALS, policy: str = POLICY, port: int = 1) -> World:
    """Make everybody's folder."""
    roles = {"hub": "coordinator", "olga": "operator", **dict.fromkeys(names, "site")}
    world = World.made(folder, datetime.now(UTC), roles)  # type: ignore[arg-type]
    for name in names:
        (folder / name / "site.toml").write_text(
            f'coordinator = "localhost:{port}"\nretry_cap_seconds = 1\n[data.heart]\n'
        )
        (folder / name / "policy.toml").write_text(policy)
    (folder / "olga" / "operator.toml").write_text(f'coordinator = "localhost:{port}"\n')
    return world


@contextmanager
def services(world: World, names: tuple[str, ...] = HOSPITALS) -> Iterator[Mapping[str, SiteService]]:
    """Open every site's service."""
    made, stores = {}, []
    try:
        for name in names:
            folder = world.folder / name
            config = read_config(folder / "site.toml", SiteConfig)
            credentials = member(folder, "site")
            stores.append(ledger_of(config, folder, name))
            made[name] = SiteService(config, folder, stores[-1], partial(party_of, credentials))
        yield made
    finally:
        for store in stores:
            store.close()


def wired(sites: Mapping[str, SiteService]) -> InProcess:
    """Connect them without a network."""
    return InProcess({name: site.handle for name, site in sites.items()}, lambda: 0.0)
