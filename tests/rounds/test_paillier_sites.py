"""A coordinator that carries the Paillier key between sites, and lies: what it replays, withholds and makes up."""

from collections.abc import Mapping

import numpy as np
import pytest

from consilia.core.errors import ProtocolError
from consilia.core.randomness import SecretRng
from consilia.crypto.keys import ExchangeKey
from consilia.crypto.paillier_lanes import Lanes
from consilia.crypto.paillier_opening import Opening
from consilia.crypto.signing import SigningKey
from consilia.rounds.secure.paillier import PaillierCoordinator, PaillierSite
from consilia.rounds.secure.signed import sign
from consilia.secagg.framing import join, join_named
from consilia.secagg.roster import Identity, Roster

RNG = SecretRng(bytes(32))
NAMES = ("a", "b", "c", "d")
IDENTITIES = {name: Identity.draw(name, RNG.derive(name)) for name in NAMES}
ROSTER = Roster.signed([identity.member for identity in IDENTITIES.values()], SigningKey.draw(RNG))
CONTEXT = bytes(32)
LANES = Lanes(2048, 1000, 4)
VECTORS = {name: np.arange(9) * place for place, name in enumerate(NAMES, 1)}


def opener(context: bytes) -> str:
    return NAMES[Opening(context, 9, (1, 2, 3, 4), (), 3).opener - 1]


# A round whose sum the first site does not open: that one makes the key, and never takes it from anybody.
ROUND = next(context for context in (b"round %d" % number for number in range(99)) if opener(context) != "a")
OPENER = opener(ROUND)


def fresh(name: str) -> PaillierSite:
    return PaillierSite(IDENTITIES[name], ROSTER, LANES, CONTEXT, 3)


class World:
    """Four sites, and a coordinator that keeps all it carried."""

    def __init__(self) -> None:
        self.sites = {name: fresh(name) for name in NAMES}
        self.coordinator = PaillierCoordinator(NAMES, LANES, 3)
        self.heard: dict[tuple[str, str], bytes] = {}

    def ask(self, step: str, contents: Mapping[str, bytes]) -> dict[str, bytes]:
        self.heard |= {(step, name): content for name, content in contents.items()}
        return {name: self.say(name, step, content) for name, content in contents.items()}

    def say(self, name: str, step: str, content: bytes) -> bytes:
        one = self.sites[name]
        return one.open(content, ROUND, 9, NAMES, RNG) if step == "open" else one.step(step, content, RNG)


@pytest.fixture
def world() -> World:
    world = World()
    world.coordinator.ceremony(world.ask)
    return world


@pytest.fixture
def payloads(world: World) -> dict[str, bytes]:
    return {name: world.sites[name].encrypt(ROUND, vector, RNG) for name, vector in VECTORS.items()}


def question(world: World, payloads: dict[str, bytes], *names: str) -> bytes:
    total = world.coordinator.add([payloads[name] for name in names], 9)
    return join([join_named(dict.fromkeys(names, b"")), total])


def test_sites_with_one_key_open_their_sum(world: World, payloads: dict[str, bytes]) -> None:
    total = world.coordinator.add(payloads.values(), 9)
    opened = world.coordinator.open(total, ROUND, 9, NAMES, NAMES, world.ask)
    assert opened.tolist() == sum(VECTORS.values()).tolist()  # type: ignore[union-attr]


def test_a_second_sum_of_a_round_stays_closed_and_the_first_may_be_told_again(
    world: World, payloads: dict[str, bytes]
) -> None:
    all_four = question(world, payloads, *NAMES)
    told = world.say(OPENER, "open", all_four)
    with pytest.raises(ProtocolError, match="a context that this site has not answered for"):
        world.say(OPENER, "open", question(world, payloads, "a", "b", "c"))
    assert world.say(OPENER, "open", all_four) == told


def test_a_key_of_before_is_not_handed_again_to_a_site_that_forgot_what_it_opened(
    world: World, payloads: dict[str, bytes]
) -> None:
    """It would open a second sum of the round, and the two differ in one site's vector."""
    world.say(OPENER, "open", question(world, payloads, *NAMES))
    world.sites[OPENER] = fresh(OPENER)
    world.say(OPENER, "greet", b"")
    with pytest.raises(ProtocolError, match="the signature of the site that makes it"):
        world.say(OPENER, "take", world.heard["take", OPENER])
    with pytest.raises(ProtocolError, match="the key that the first site makes"):
        world.say(OPENER, "open", question(world, payloads, "a", "b", "c"))


def test_a_new_key_opens_nothing_of_before(world: World, payloads: dict[str, bytes]) -> None:
    old = question(world, payloads, "a", "b", "c")
    world.sites[OPENER] = fresh(OPENER)
    world.coordinator.ceremony(world.ask)
    with pytest.raises(ProtocolError):
        world.say(OPENER, "open", old)


def test_a_key_is_taken_once_a_greeting(world: World) -> None:
    with pytest.raises(ProtocolError, match="in its turn"):
        world.say("b", "take", world.heard["take", "b"])
    with pytest.raises(ProtocolError, match="in its turn"):
        fresh("b").step("take", world.heard["take", "b"], RNG)


def test_the_coordinator_cannot_have_the_key_sealed_to_itself(world: World) -> None:
    reader = ExchangeKey.draw(RNG).public
    labels = [CONTEXT, b"reader of a key"]
    stranger = Identity.draw("b", RNG)
    for name, greeting in (
        ("b", sign(stranger, labels, reader)),
        ("b", sign(IDENTITIES["c"], labels, reader)),
        ("e", sign(Identity.draw("e", RNG), labels, reader)),
        ("b", sign(IDENTITIES["b"], [bytes([1]) * 32, labels[1]], reader)),  # of another run
        ("b", reader),
    ):
        with pytest.raises(ProtocolError, match="its signature, for this step of this run"):
            world.say("a", "make", join_named({name: greeting}))


@pytest.mark.parametrize("name", ["b", "c", "d"])
def test_no_other_site_makes_a_key(world: World, name: str) -> None:
    with pytest.raises(ProtocolError, match="in its turn"):
        world.say(name, "make", b"")
