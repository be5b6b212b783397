"""Opening: refused where it must be, and what is wrong is found."""

from dataclasses import replace

import numpy as np
import pytest
from tests.crypto.rlwe_run import ROUND, Run, rng

from consilia.core.errors import ProtocolError
from consilia.crypto import rlwe
from consilia.crypto.rlwe_parameters import PRIMES, RlweParameters
from consilia.crypto.rlwe_sampling import uniform
from consilia.crypto.rlwe_threshold import Opening, combine, partial
from consilia.crypto.rlwe_wire import pack, unpack

RUN = Run(RlweParameters(5, 3, 5, 2**15 - 1, 3))
TIGHT = Run(RlweParameters(5, 3, 5, 700_000_000, 3))  # hardly any room between the noise and half a step
VECTORS = [np.arange(60) * (i + 1) for i in range(5)]
OPENING = RUN.opening(range(1, 6), 60)


@pytest.fixture(scope="module")
def payloads() -> list[bytes]:
    return RUN.encrypt(VECTORS)


@pytest.fixture(scope="module")
def total(payloads: list[bytes]) -> bytes:
    return RUN.sums.add(payloads, 60)


@pytest.fixture(scope="module")
def answers(total: bytes) -> dict[int, bytes]:
    return RUN.answers(total, OPENING)


def ask(masks: bytes | memoryview, opening: Opening = OPENING, site: int = 1) -> bytes:
    return partial(RUN.parameters, RUN.share(site), opening, masks, rng("ask"), answered=set())


def test_a_site_answers_once_a_context(total: bytes) -> None:
    masks, answered = RUN.sums.to_open(total, 60), {ROUND}
    for again in (OPENING, replace(OPENING, contributors=(1, 2, 3)), replace(OPENING, decrypters=(1, 2, 4))):
        with pytest.raises(ProtocolError, match="not answered for"):
            partial(RUN.parameters, RUN.share(1), again, masks, rng("again"), answered=answered)
    assert partial(RUN.parameters, RUN.share(1), OPENING, masks, rng("again"), answered={b"round 0"})


@pytest.mark.parametrize("decrypters", [(), (1,), (1, 2), (1, 2, 3, 4), (1, 2, 2), (0, 1, 2), (1, 2, 6), (2, 3, 4)])
def test_a_site_answers_only_in_a_set_of_t_that_names_it(total: bytes, decrypters: tuple[int, ...]) -> None:
    with pytest.raises(ProtocolError):
        ask(RUN.sums.to_open(total, 60), replace(OPENING, decrypters=decrypters))


@pytest.mark.parametrize("contributors", [(), (1,), (1, 2), (1, 2, 3, 4, 4), (1, 2, 3, 4, 6), (1, 2, 3, 4, 5, 5)])
def test_a_site_opens_no_sum_of_too_few(payloads: list[bytes], contributors: tuple[int, ...]) -> None:
    inside = [payloads[i - 1] for i in contributors if i < 6][:5] or payloads[:1]
    with pytest.raises(ProtocolError, match="contributors"):
        ask(RUN.sums.to_open(RUN.sums.add(inside, 60), 60), replace(OPENING, contributors=contributors))


def test_a_coordinator_cannot_have_another_sum_opened(payloads: list[bytes], total: bytes) -> None:
    """One vector in the name of five, a sum with one left out, one twice, one of another round, one changed, no real tag."""
    masks = RUN.sums.to_open(total, 60)
    assert ask(masks)
    old = RUN.cipher(5, b"round 0").encrypt(VECTORS[4], rng("old"))
    offered = {
        "one": payloads[0],
        "four": RUN.sums.add(payloads[:4], 60),
        "twice": RUN.sums.add([*payloads[:4], payloads[0]], 60),
        "old": RUN.sums.add([*payloads[:4], old], 60),
        "one under the tag of all": payloads[0][:-48] + total[-48:],
    }
    for what, other in offered.items():
        with pytest.raises(ProtocolError, match="exactly what the listed sites"):
            pytest.fail(f"{what} was opened: {len(ask(RUN.sums.to_open(other, 60)))} bytes")
    with pytest.raises(ProtocolError, match="exactly"):
        ask(masks, replace(OPENING, contributors=(1, 2, 3, 4)))
    with pytest.raises(ProtocolError, match="exactly"):
        ask(masks, replace(OPENING, context=b"round 2"))
    for place in (0, 15 * 1024 * 2 + 700, len(masks) - 48, len(masks) - 1):
        spoilt = bytearray(masks)
        spoilt[place] ^= 1
        with pytest.raises(ProtocolError):
            ask(bytes(spoilt))


def test_malformed_sums_are_not_opened(total: bytes) -> None:
    masks = bytes(RUN.sums.to_open(total, 60))
    for bad in (b"", masks[:-1], masks + b"\0", masks[:47], b"\xff" * len(masks), total):
        with pytest.raises(ProtocolError):
            ask(bad)


def test_malformed_answers_are_refused(total: bytes, answers: dict[int, bytes]) -> None:
    good = answers[2]
    for bad in (b"", good[:-1], good + b"\0", good[:32] + b"\xff" * (len(good) - 32), b"\0" * len(good)):
        with pytest.raises(ProtocolError, match="site 2"):
            combine(RUN.sums, total, OPENING, {**answers, 2: bad})


def test_fewer_or_other_answers_than_announced_are_refused(total: bytes, answers: dict[int, bytes]) -> None:
    for found in (
        {},
        {1: answers[1], 2: answers[2]},
        {**answers, 4: answers[3]},
        {1: answers[1], 2: answers[2], 4: answers[3]},
    ):
        with pytest.raises(ProtocolError, match="answers of the sites"):
            combine(RUN.sums, total, OPENING, found)
    with pytest.raises(ProtocolError, match="3 to 3"):
        combine(RUN.sums, total, replace(OPENING, decrypters=(1, 2)), {1: answers[1], 2: answers[2]})


def test_answers_for_something_else_are_refused(total: bytes, answers: dict[int, bytes]) -> None:
    for other in (
        replace(OPENING, context=b"round 2"), replace(OPENING, contributors=(1, 2, 3, 4)), replace(OPENING, dim=61),
        replace(OPENING, decrypters=(1, 2, 4)),
    ):  # fmt: skip
        renamed = {4 if site == 3 and 4 in other.decrypters else site: answer for site, answer in answers.items()}
        with pytest.raises(ProtocolError, match="another"):
            combine(RUN.sums, total, other, renamed)
    for bad in (b"", total[:-1], total + total):
        with pytest.raises(ProtocolError):
            combine(RUN.sums, bad, OPENING, answers)


@pytest.mark.parametrize("run", [RUN, TIGHT], ids=["much room", "little room"])
def test_a_wrong_share_or_a_missing_answer_is_seen(run: Run) -> None:
    total = run.sums.add(run.encrypt(VECTORS), 60)
    masks, answers = run.sums.to_open(total, 60), run.answers(total, OPENING)
    assert (combine(run.sums, total, OPENING, answers) == np.sum(VECTORS, axis=0)).all()
    wrong = replace(run.share(4), site=2)
    another = partial(run.parameters, wrong, OPENING, masks, rng("wrong"), answered=set())
    nothing = answers[2][:32] + bytes(len(answers[2]) - 32)
    polynomials = [uniform(p, 4096, rng("noise", p)) for p in run.parameters.kept]
    noise = answers[2][:32] + pack(np.array(polynomials).reshape(-1, 1, 64, 64))
    for answer in (another, nothing, noise):
        with pytest.raises(ProtocolError, match="partial decryptions"):
            combine(run.sums, total, OPENING, {**answers, 2: answer})


def test_a_sum_of_another_number_of_vectors_is_seen(payloads: list[bytes]) -> None:
    """c_0 of four vectors under c_1 of five: the coordinator only fools itself, and learns that it did."""
    total = RUN.sums.add(payloads, 60)
    head = len(total) - len(RUN.sums.to_open(total, 60))
    step = RUN.parameters.step
    lanes = np.frombuffer(total[:8], "<u8")[0]
    shifted = (int(lanes) & (2**30 - 1)) + step
    spoilt = ((int(lanes) & ~(2**30 - 1)) | shifted % PRIMES[2]).to_bytes(8, "little") + total[8:]
    assert len(spoilt[:head]) == head
    with pytest.raises(ProtocolError, match="5 vectors"):
        combine(RUN.sums, spoilt, OPENING, RUN.answers(total, OPENING))


def test_values_out_of_range_and_more_values_than_agreed_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as lifted:
        lifted.setattr(rlwe, "require_bounded", lambda values, bound: None)
        payloads = RUN.encrypt([np.full(60, 120_000 if i == 0 else 0) for i in range(3)])
    with pytest.raises(ProtocolError, match="a value up to 120000"):  # of three that reach 98301 at most
        RUN.open(RUN.sums.add(payloads, 60), RUN.opening((1, 2, 3), 60))
    longer = RUN.sums.add(RUN.encrypt([np.ones(61, np.int64)] * 5), 60)
    with pytest.raises(ProtocolError, match="more than 60 values"):
        RUN.open(longer, OPENING)


def test_the_flood_is_as_wide_as_the_parameters_say() -> None:
    """Seen where two primes are kept: the difference of two answers, in units of the dropped prime, is of 2^(f - 30)."""
    total = TIGHT.sums.add(TIGHT.encrypt(VECTORS), 60)
    masks = TIGHT.sums.to_open(total, 60)
    kept = TIGHT.parameters.kept
    answers = (
        partial(TIGHT.parameters, TIGHT.share(1), OPENING, masks, rng("wide", i), answered=set()) for i in (1, 2)
    )
    first, second = (unpack(answer[32:], kept, 1, who="a test").astype(np.int64) for answer in answers)
    residues = (first - second) % np.array(kept).reshape(-1, 1, 1, 1)
    whole = residues[0] + kept[0] * ((residues[1] - residues[0]) * pow(kept[0], -1, kept[1]) % kept[1])
    modulus = kept[0] * kept[1]
    difference = np.where(whole > modulus // 2, whole - modulus, whole)
    width = 2.0 ** (TIGHT.parameters.flood - 30)
    assert 0.9 < np.abs(difference).max() / width <= 1
    assert abs(difference.std() / width - 6**-0.5) < 0.03  # a difference of two uniforms
