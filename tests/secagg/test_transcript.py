"""The transcript: an honest chain passes, and each thing a coordinator could change afterwards is found by a site."""

from dataclasses import replace
from hashlib import sha256

import pytest
from tests.secagg.consortium import Run, other, rng, session

from consilia.core.errors import ProtocolError
from consilia.crypto.signing import SigningKey
from consilia.secagg import server, transcript
from consilia.secagg.messages import Masked
from consilia.secagg.transcript import Entry, Witness

KEY = SigningKey.draw(rng("coordinator"))
A, GONE = "site-000", "site-004"


def round_of(number: int, model_in: str, model_out: str, previous: str) -> tuple[Entry, dict[str, Witness]]:
    run = Run(
        other(session(5), round=number, model_digest=model_in, session_id=bytes([number]) * 16), {"masked": [GONE]}
    )
    end = run.play()
    assert isinstance(end, server.Done)
    entry = transcript.write(run.of, uploads=end.uploads, total=end.total, model_out=model_out, previous=previous,
                             coordinator=KEY)  # fmt: skip
    sent = {site: message for site, message in run.said if isinstance(message, Masked)}
    return entry, {
        site: Witness(
            run.of.context.hex(), model_in, sha256(message.payload).hexdigest(), run.states[site].survivors.names
        )
        for site, message in sent.items()
    }


@pytest.fixture(scope="module")
def rounds() -> list[tuple[Entry, dict[str, Witness]]]:
    first = round_of(1, "m1", "m2", transcript.first("run"))
    return [first, round_of(2, "m2", "m3", first[0].hash)]


Rounds = list[tuple[Entry, dict[str, Witness]]]


def check(entry: Entry, last: Entry | None, witness: Witness | None, *, site: str = A, model: str = "m3") -> None:
    transcript.check(entry, run="run", coordinator=KEY.public, last=last, site=site, witness=witness, model=model)


def resigned(entry: Entry, **changes: object) -> Entry:
    changed = replace(entry, **changes)  # type: ignore[arg-type]
    return replace(changed, signature=KEY.sign(changed.text))


def test_an_honest_chain(rounds: Rounds) -> None:
    (one, seen), (two, later) = rounds
    for site in seen:
        check(one, None, seen[site], site=site, model="m2")
        check(two, one, later[site], site=site)
    check(two, one, None, site=GONE)  # dropped out: it has only the chain to check
    assert Entry.from_json(two.to_json()) == two


@pytest.mark.parametrize(("change", "found"), [
    ({"model_out": "x"}, "the model this site was given next"),
    ({"model_in": "x"}, "each round to start from the model before"),
    ({"previous": "x"}, "the entry before to be the one this site has checked"),
    ({"round": 1}, "rounds that go up"), ({"run": "x"}, "run run"), ({"context": "x"}, "the session this site took part in"),
    ({"uploads": {A: "x"}}, "the vector this site sent"), ({"uploads": {}}, "the survivors this site voted for"),
])  # fmt: skip
def test_each_change_is_found(rounds: Rounds, change: dict[str, object], found: str) -> None:
    (one, _), (two, seen) = rounds
    with pytest.raises(ProtocolError, match=found):
        check(resigned(two, **change), one, seen[A])


def test_a_sum_exchanged_afterwards_is_another_entry(rounds: Rounds) -> None:
    (one, seen), (two, later) = rounds
    changed = resigned(one, total="x")
    check(changed, None, seen[A], model="m2")  # nobody but who has the sum can tell
    with pytest.raises(ProtocolError, match="the entry before"):
        check(two, changed, later[A])  # but it cannot be told two ways


def test_an_entry_that_the_coordinator_has_not_signed(rounds: Rounds) -> None:
    (one, _), (two, seen) = rounds
    stranger = SigningKey.draw(rng("stranger"))
    for signature in (b"", bytes(64), one.signature, stranger.sign(two.text)):
        with pytest.raises(ProtocolError, match="the coordinator's signature"):
            check(replace(two, signature=signature), one, seen[A])


def test_a_site_that_sent_nothing_finds_a_vector_under_its_name(rounds: Rounds) -> None:
    (one, _), (two, _) = rounds
    with pytest.raises(ProtocolError, match="no vector of this site"):
        check(resigned(two, uploads={**two.uploads, GONE: "x"}), one, None, site=GONE)


def test_what_is_no_entry(rounds: Rounds) -> None:
    plain = rounds[0][0].to_json()
    wrong: list[object] = [None, [], {}, {**plain, "more": 1}, {**plain, "round": "1"}, {**plain, "round": True},
                           {**plain, "uploads": []}, {**plain, "uploads": {A: 1}}, {**plain, "signature": "xyz"},
                           {**plain, "run": 1}, {**plain, "run": "\ud800"}]  # fmt: skip
    for value in wrong:
        with pytest.raises(ProtocolError, match="its nine fields"):
            Entry.from_json(value)


def test_all_that_does_not_fit_is_said_at_once(rounds: Rounds) -> None:
    with pytest.raises(ProtocolError) as caught:
        check(rounds[1][0], None, None, model="x")
    assert len(caught.value.problems) == 3
