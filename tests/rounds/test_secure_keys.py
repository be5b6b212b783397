"""Real sites under encryption, in front of a coordinator that lies about keys and sums."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.rounds.bench import RECORD, Bench
from tests.rounds.hand import charged, refused
from tests.rounds.secure_bench import SITES, secret

from consilia.core.canonical import Json, digest_bytes
from consilia.core.randomness import SecretRng
from consilia.core.update import ProtocolMessage, Release
from consilia.core.wire import decode, encode, pack_vector
from consilia.crypto.keys import ExchangeKey
from consilia.crypto.paillier_handover import hand_over
from consilia.crypto.paillier_opening import Opening
from consilia.crypto.signing import SigningKey
from consilia.rounds.secure.cipher_site import context_of
from consilia.rounds.secure.rlwe import RlweCoordinator
from consilia.rounds.secure.shape import shape_of
from consilia.rounds.secure.signed import run_context
from consilia.secagg.framing import join, join_named, split, split_named

ME = "Cleveland"
BenchMaker = Callable[..., Bench]


class Keeper:
    """A coordinator led by hand, once the sites have their keys and have answered round 1."""

    def __init__(self, one: Bench) -> None:
        self.one = one
        one.coordinator._round(1)
        sums: Any = one.coordinator._gatherer
        self.sums = sums
        self.body: dict[str, Any] = {**sums._body, "purpose": "update"}

    def ask(self, site: str, kind: str, number: int, payload: bytes, **body: Json) -> bytes:
        task = ProtocolMessage(kind, site, number, {**self.body, "counted": 0, **body}, payload)
        return self.one.simulation.sites[site].handle(encode(task))

    @property
    def model(self) -> str:
        return digest_bytes(pack_vector(self.one.coordinator.state.model))

    def vector(self, site: str, number: int, kind: str = "evaluate", **body: Json) -> bytes:
        model = pack_vector(self.one.coordinator.state.model)
        return self.ask(site, kind, number, model, purpose="update" if kind == "train" else "evaluation", **body)

    def uploads(self, number: int) -> dict[str, bytes]:
        """Ask every site for its scores in a round; return their ciphertexts."""
        answers = {site: decode(self.vector(site, number), who="test") for site in SITES}
        assert all(isinstance(answer, Release) for answer in answers.values())
        return {site: bytes(answer.payload) for site, answer in answers.items()}

    def opening(self, uploads: Mapping[str, bytes], number: int, listed: tuple[str, ...]) -> dict[str, bytes]:
        """Have the sum of these ciphertexts opened, said to be of the listed sites; return what each site answers."""
        dim = self.dim("evaluation", number)
        total = self.sums._scheme.add([*uploads.values()], dim)
        names = join_named(dict.fromkeys(listed, b""))
        if isinstance(self.sums._scheme, RlweCoordinator):
            helping = join_named(dict.fromkeys(SITES[:3], b""))
            content = join([names, helping, self.sums._scheme._sums.to_open(total, dim)])
        else:
            content = join([names, total])
        return {
            site: self.ask(site, "sum", number, content, stage="open", purpose="evaluation", model=self.model)
            for site in self.openers(number)
        }

    def openers(self, number: int) -> tuple[str, ...]:
        if isinstance(self.sums._scheme, RlweCoordinator):
            return SITES[:3]
        run = self.one.prepared.run_plan
        assert self.one.simulation.consortium is not None
        context = context_of(
            run_context("bench", run.digest, self.one.simulation.consortium.roster), "evaluation", number, self.model
        )
        return (SITES[Opening(context, 1, (1, 2, 3, 4), (), 3).opener - 1],)

    def dim(self, purpose: str, number: int) -> int:
        half: Any = self.one.simulation.sites[ME]._sums
        return shape_of(half._half, half._secure, purpose, number, 4).dim


def keeper(mode: str, bench: BenchMaker, **more: Any) -> Keeper:
    return Keeper(bench(secret(mode, rounds=3, privacy=RECORD, reproducible=False, evaluation="every = 3", **more)))


CIPHERS = ["rlwe", "paillier"]


def payload(answer: bytes) -> bytes:
    return b"" if refused(answer) else bytes(decode(answer, who="test").payload)


def opened(answers: Mapping[str, bytes]) -> bool:
    """True if every site that was asked helped."""
    return all(not refused(answer) for answer in answers.values())


@pytest.mark.parametrize("mode", CIPHERS)
def test_a_context_is_opened_once(mode: str, bench: BenchMaker) -> None:
    hand = keeper(mode, bench)
    uploads = hand.uploads(1)
    three = {site: uploads[site] for site in SITES[:3]}
    assert opened(hand.opening(uploads, 1, SITES))
    assert opened(hand.opening(uploads, 1, SITES))  # the same bytes again
    assert all(refused(answer) for answer in hand.opening(three, 1, SITES[:3]).values())


@pytest.mark.parametrize("mode", CIPHERS)
@pytest.mark.parametrize(
    ("inside", "listed"),
    [(SITES[:1], SITES[:1]), (SITES[:2], SITES[:2]), (SITES[:1], SITES), (SITES[:3], SITES), (SITES, SITES[:3]),
     (SITES[:1], (*SITES[:2], "Basel"))],
)  # fmt: skip
def test_a_sum_of_one_or_of_others_than_listed_is_not_opened(
    mode: str, inside: tuple[str, ...], listed: tuple[str, ...], bench: BenchMaker
) -> None:
    hand = keeper(mode, bench)
    uploads = hand.uploads(1)
    answers = hand.opening({site: uploads[site] for site in inside}, 1, listed)
    assert all(refused(answer) for answer in answers.values())
    assert opened(hand.opening(uploads, 1, SITES))  # for the lie, and not for anything else


@pytest.mark.parametrize("mode", CIPHERS)
def test_a_vector_taken_twice_or_from_another_round_is_not_opened(mode: str, bench: BenchMaker) -> None:
    hand = keeper(mode, bench)
    first, second = hand.uploads(1), hand.uploads(2)
    twice = {**first, "Hungary": first[ME]}
    assert all(refused(answer) for answer in hand.opening(twice, 1, SITES).values())
    mixed = {**first, ME: second[ME]}
    assert all(refused(answer) for answer in hand.opening(mixed, 1, SITES).values())


@pytest.mark.parametrize("mode", CIPHERS)
def test_new_keys_do_not_make_a_site_answer_a_round_again(mode: str, bench: BenchMaker) -> None:
    hand = keeper(mode, bench)
    before = charged(hand.one, ME)
    scores = hand.uploads(1)
    hand.sums._keyed = False
    hand.sums._keys()  # a whole ceremony, under another name
    hand.body |= hand.sums._body
    assert refused(hand.vector(ME, 1, "train"))
    assert hand.uploads(1) == scores or all(refused(hand.vector(site, 1)) for site in SITES)
    assert charged(hand.one, ME) == before == 1
    assert not refused(hand.vector(ME, 2, "train"))
    assert charged(hand.one, ME) == 2


@pytest.mark.parametrize("mode", CIPHERS)
def test_a_step_under_another_name_lets_no_second_vector_leave(mode: str, bench: BenchMaker) -> None:
    hand = keeper(mode, bench)
    score = hand.vector(ME, 1)
    for stage in ("part", "join", "take", "make", "audit"):
        hand.ask(ME, "sum", 0, b"", stage=stage, session="f" * 32)
        assert payload(hand.vector(ME, 1, session="f" * 32)) in (b"", payload(score))
    hand.one.coordinator.state.model = -2 * hand.one.coordinator.state.model
    for name in ("f" * 32, hand.body["session"]):
        assert refused(hand.vector(ME, 1, session=name))
    assert charged(hand.one, ME) == 1


@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_rounds_only_go_forward(kind: str, bench: BenchMaker) -> None:
    hand = keeper("rlwe", bench)
    assert not refused(hand.vector(ME, 3, kind))
    half: Any = hand.one.simulation.sites[ME]._sums
    half._newest.clear()  # what a restart forgets
    half._models.clear()
    before = charged(hand.one, ME)
    assert refused(hand.vector(ME, 2, kind))
    assert charged(hand.one, ME) == before
    assert not refused(hand.vector(ME, 3, "evaluate"))


@pytest.mark.parametrize("mode", CIPHERS)
def test_only_the_schedules_rounds_and_the_keys_made_last(mode: str, bench: BenchMaker) -> None:
    hand = keeper(mode, bench)
    for number in (0, 5, 10**6, -1):
        assert refused(hand.vector(ME, number))
        assert refused(hand.vector(ME, number, "train"))
    for body in ({"session": "0" * 32}, {"session": 3}, {"run": "other"}, {"plan": "x" * 64}):
        assert refused(hand.vector(ME, 2, "train", **body))
        assert refused(hand.vector(ME, 2, **body))
    assert charged(hand.one, ME) == 1


@pytest.mark.parametrize("mode", CIPHERS)
def test_sites_that_were_shown_other_models_have_no_sum(mode: str, bench: BenchMaker) -> None:
    """Pasquini et al. (2022): with models of the server's choice the others send nothing, and the sum is one site's update."""
    hand = keeper(mode, bench)
    mine = hand.vector(ME, 2)
    true = hand.one.coordinator.state.model
    hand.one.coordinator.state.model = 0.7 * true  # so near that it might be an honest step
    others = {site: payload(hand.vector(site, 2)) for site in SITES if site != ME}
    assert refused(hand.vector(ME, 2))
    assert all(refused(answer) for answer in hand.opening({ME: payload(mine), **others}, 2, SITES).values())
    hand.one.coordinator.state.model = true
    assert all(refused(answer) for answer in hand.opening({ME: payload(mine), **others}, 2, SITES).values())


def test_rlwe_commitments_of_a_stranger_are_refused(bench: BenchMaker) -> None:
    hand = keeper("rlwe", bench)
    made = {site: bytes(decode(hand.ask(site, "sum", 0, b"", stage="commit"), who="test").payload) for site in SITES}
    assert refused(hand.ask(ME, "sum", 0, join_named({**made, "Hungary": made["Hungary"][:-1] + b"?"}), stage="part"))
    assert refused(hand.ask(ME, "sum", 0, join_named({site: made[site] for site in SITES[:3]}), stage="part"))
    assert refused(hand.ask(ME, "sum", 0, join_named({**made, "Hungary": made[ME]}), stage="part"))
    part = decode(hand.ask(ME, "sum", 0, join_named(made), stage="part"), who="test")
    public, sealed = split(bytes(part.payload), 2, who="test")
    # Its own part in everyone's name, and shares that are meant for others.
    stuffed = join([join_named(dict.fromkeys(SITES, public)), join_named(split_named(sealed, who="test"))])
    assert refused(hand.ask(ME, "sum", 0, stuffed, stage="join"))
    assert refused(hand.vector(ME, 2, "train"))  # the keys are being made anew
    assert charged(hand.one, ME) == 1


def test_paillier_a_key_of_the_coordinators_own_is_refused(bench: BenchMaker) -> None:
    hand = keeper("paillier", bench)
    consortium = hand.one.simulation.consortium
    assert consortium is not None
    maker: Any = hand.one.simulation.sites[ME]._sums
    site = "Hungary"
    greeting = bytes(decode(hand.ask(site, "sum", 0, b"", stage="greet"), who="test").payload)
    rng = SecretRng(b"c" * 32)
    mine = hand_over(
        maker._scheme._key, context=maker._context, maker=SigningKey(b"c" * 32), reader=greeting[-32:], rng=rng
    )
    assert refused(hand.ask(site, "sum", 0, mine, stage="take"))
    # And the maker seals to nobody but the sites of the roster, each by its own word.
    stranger = ExchangeKey.draw(rng).public
    for forged in ({site: greeting[:-32] + stranger}, {"Basel": greeting}, {"Switzerland": greeting}):
        assert refused(hand.ask(ME, "sum", 0, join_named(forged), stage="make"))
