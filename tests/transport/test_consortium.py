"""Keys of a simulated consortium outlive a run, so no run may make them of what anyone knows."""

from pathlib import Path

from tests.rounds.bench import RECORD, heart

from consilia.core.randomness import SecretRng
from consilia.crypto.signing import SEED_SIZE, SigningKey
from consilia.transport.simulation import Simulation, entropy_of, prepare


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
