"""Keys of a simulated consortium outlive a run, so no run may make them of what anyone knows."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.rounds.bench import RECORD, heart

from consilia.core.errors import StoreError
from consilia.core.randomness import SecretRng
from consilia.crypto.signing import SEED_SIZE, SigningKey
from consilia.federation.assemble import entropy_of
from consilia.federation.consortium import _key
from consilia.federation.simulation import Simulation, prepare


def test_a_reproducible_run_leaves_no_keys_that_follow_from_its_seed(tmp_path: Path) -> None:
    plan = heart(privacy=RECORD + '\n[secure_sum]\nmode = "masks"', reproducible=True)
    prepared = prepare(plan, Path.cwd())
    found = []
    for folder in ("one", "two"):
        with Simulation(prepared, run="r", home=tmp_path / folder) as simulation:
            assert simulation.consortium is not None
            found.append(simulation.consortium)
    one, two = found
    assert one.signing.seed != two.signing.seed
    entropy = entropy_of(plan)
    for name, party in one.parties.items():
        assert party.identity.signing.seed != two.parties[name].identity.signing.seed
        guess: SecretRng = entropy.stream("identity", name)
        assert party.identity.signing.seed != guess.token(2 * SEED_SIZE)[:SEED_SIZE]
    assert one.signing.public != SigningKey(entropy.stream("key", "coordinator.key").token(SEED_SIZE)).public


def test_a_run_goes_on_only_with_the_key_it_began_with(tmp_path: Path) -> None:
    plan = heart(privacy=RECORD + '\n[secure_sum]\nmode = "masks"')
    with Simulation(prepare(plan, Path.cwd()), run="r", home=tmp_path) as simulation:
        assert simulation.consortium is not None
        simulation.consortium.require(simulation.consortium.signing.public.hex())
        for other in (None, "00" * 32):
            with pytest.raises(StoreError, match="the one this run began with"):
                simulation.consortium.require(other)


def test_keys_are_whole_and_of_the_first_who_made_them(tmp_path: Path) -> None:
    path = tmp_path / "a.key"
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: _key(path).seed, range(32)))
    assert len(set(found)) == 1
    assert [one.name for one in tmp_path.iterdir()] == ["a.key"]
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(b"")
    with pytest.raises(StoreError, match="restore it from a copy"):
        _key(path)
