"""A hostile coordinator, one test a trick: the sites it is tried on refuse, and give nothing away afterwards."""

from collections.abc import Callable

import numpy as np
import pytest
from tests.secagg.consortium import CONSORTIUM, Run, identities, other, refusals, revealed, rng, roster, session, starts

from consilia.core.errors import PlanError, ProtocolError
from consilia.crypto.keys import ExchangeKey
from consilia.crypto.signing import SigningKey
from consilia.secagg import client, server
from consilia.secagg.messages import Advert, Adverts, Begin, Inbox, Refused, Reveal, Survivors, ToSite, Vote, Votes
from consilia.secagg.params import least_threshold, most_colluders
from consilia.secagg.roster import Member, Roster
from consilia.secagg.rules import advert_text
from consilia.secagg.state import Contribution

A, B = "site-000", "site-001"


def tried(tamper: Callable[[str, ToSite], list[ToSite]], count: int = 7, **choices: object) -> Run:
    run = Run(session(count, **choices), tamper=tamper)  # type: ignore[arg-type]
    run.play()
    return run


def only(kind: type, change: Callable[[str, ToSite], list[ToSite]]) -> Callable[[str, ToSite], list[ToSite]]:
    return lambda site, message: change(site, message) if isinstance(message, kind) else [message]


def silent_afterwards(run: Run, site: str) -> None:
    """After a refusal nothing but the same refusal leaves, whatever comes."""
    state = run.states[site]
    for event in (Begin(b"s" * 16), Survivors(run.of.cohort), Votes({}), *(m for s, m in run.heard if s == site)):
        state, answers = client.step(state, event)
        assert [type(answer) for answer in answers] == [Refused]


def test_an_honest_coordinator_is_not_refused() -> None:
    run = tried(lambda _site, message: [message])
    assert isinstance(run.end, server.Done)
    assert refusals(run) == {}
    assert len(revealed(run)) == 7


def test_overlapping_survivor_lists_to_one_site() -> None:
    """First all survive, then one does not: both kinds of its shares would open its vector."""

    def twice(_site: str, message: ToSite) -> list[ToSite]:
        assert isinstance(message, Survivors)
        return [message, Survivors(tuple(name for name in message.names if name != B))]

    run = tried(only(Survivors, twice), adversary="passive")
    assert set(refusals(run)) == set(run.of.cohort)
    assert "Survivors another than before" in refusals(run)[A]
    assert revealed(run) == {}
    silent_afterwards(run, A)


@pytest.mark.parametrize("adversary", ["active", "passive"])
def test_different_survivor_lists_to_different_sites(adversary: str) -> None:
    def split(site: str, message: ToSite) -> list[ToSite]:
        assert isinstance(message, Survivors)
        return [message] if site < "site-003" else [Survivors(tuple(n for n in message.names if n != A))]

    run = Run(session(7, adversary=adversary, fewest=5), tamper=only(Survivors, split))
    run.play()  # the honest half of the machine drops those whose votes are for another list
    assert isinstance(run.end, server.Abort)
    assert revealed(run) == {}
    # A coordinator that hands each site only votes for its own list finds too few.
    votes = {site: message.signature for site, message in run.said if isinstance(message, Vote)}
    some = {site: vote for site, vote in votes.items() if site < "site-003"}
    assert len(some) == 3
    _, answers = client.step(run.states[A], Votes(some))
    assert [type(answer) for answer in answers] == [Refused]
    assert "votes; got 3" in answers[0].reason  # type: ignore[union-attr]


def test_votes_for_one_list_shown_to_a_site_that_was_told_another() -> None:
    def lie(site: str, message: ToSite) -> list[ToSite]:
        assert isinstance(message, Survivors)
        return [Survivors(tuple(n for n in message.names if n != A)) if site == B else message]

    run = Run(session(7, adversary="passive"), tamper=only(Survivors, lie))
    run.play()
    votes = {site: message.signature for site, message in run.said if isinstance(message, Vote) and site not in (A, B)}
    _, answers = client.step(run.states[B], Votes(votes))
    assert "votes for the survivors that this site was told" in answers[0].reason  # type: ignore[union-attr]
    assert B not in revealed(run)


@pytest.mark.parametrize("fewest", [1, 2, 3, 4])
def test_a_low_threshold_cannot_be_asked_for(fewest: int) -> None:
    """t is no message: it follows from the cohort, and a plan that wants less is refused."""
    with pytest.raises(PlanError, match=f"between 5 and 7 sites|at least 3; got {fewest}"):
        session(7, fewest=fewest)


@pytest.mark.parametrize("adversary", ["active", "passive"])
@pytest.mark.parametrize("count", range(3, 40))
def test_as_many_colluders_as_the_signatures_withstand(count: int, adversary: str) -> None:
    most, t = most_colluders(adversary, count), least_threshold(adversary, count)
    assert session(count, adversary=adversary, colluders=most).colluders == most
    with pytest.raises(PlanError, match=f"at most {most} colluders"):
        session(count, adversary=adversary, colluders=most + 1)
    assert most < t
    assert most >= (count - 1) // (3 if adversary == "active" else 2)
    if adversary == "active":  # with all others split between two lists, colluders who vote twice do not make t on both
        honest = count - most
        assert not any(one + most >= t and honest - one + most >= t for one in range(honest + 1))


def test_a_session_that_another_id_begins() -> None:
    _, answers = client.step(starts(session(7))[A], Begin(b"t" * 16))
    assert "the session id it was made with" in answers[0].reason  # type: ignore[union-attr]


def test_adverts_of_sites_that_are_not_asked() -> None:
    """One the roster does not know, and one it does: its advert is even genuine, for a session in which it is asked."""
    of = session(7)
    absent = other(of, cohort=of.cohort[:6])
    extra = client.step(starts(of)["site-006"], Begin(of.session_id))[1][0]
    for name in ("nobody", "site-006"):

        def add(_site: str, message: ToSite, name: str = name) -> list[ToSite]:
            assert isinstance(message, Adverts)
            return [Adverts({**message.adverts, name: extra})]  # type: ignore[dict-item]

        run = Run(absent, tamper=only(Adverts, add))
        run.play()
        assert f"sites of the cohort; got {name} besides" in refusals(run)[A]


def test_too_few_sites_that_advertise() -> None:
    def few(_site: str, message: ToSite) -> list[ToSite]:
        assert isinstance(message, Adverts)
        return [Adverts(dict(list(message.adverts.items())[:4]))]

    run = tried(only(Adverts, few))
    assert "at least 5 sites; got 4" in refusals(run)[A]
    assert not any(isinstance(message, Reveal) or message.STAGE == "shares" for _, message in run.said)


def test_too_few_sites_whose_shares_are_passed_on() -> None:
    def few(_site: str, message: ToSite) -> list[ToSite]:
        assert isinstance(message, Inbox)
        return [Inbox(dict(list(message.envelopes.items())[:3]))]

    run = tried(only(Inbox, few))
    assert "at least 4 of this site's neighbours; got 3" in refusals(run)[A]
    assert not any(message.STAGE == "masked" for _, message in run.said)


def test_too_few_survivors() -> None:
    def few(site: str, message: ToSite) -> list[ToSite]:
        assert isinstance(message, Survivors)
        return [Survivors(tuple(sorted({site, *message.names[:3]})))]

    run = tried(only(Survivors, few))
    assert "at least 5 sites; got" in refusals(run)[A]
    assert not any(isinstance(message, Vote) for _, message in run.said)


def test_survivors_without_the_site_that_is_asked_or_with_one_that_never_shared() -> None:
    run = Run(session(7), {"shares": ["site-006"]}, tamper=only(Survivors, lambda site, m: [
        Survivors(tuple(n for n in m.names if n != site) if site == A else (*m.names, "site-006"))  # type: ignore[union-attr]
    ]))  # fmt: skip
    run.play()
    assert "this site, which sent its vector; got a list without it" in refusals(run)[A]
    assert "sites whose shares this site was sent; got site-006 besides" in refusals(run)[B]
    assert set(refusals(run)) == set(run.of.cohort) - {"site-006"}


def test_survivors_that_only_make_up_the_number() -> None:
    """Three of seven are named as survivors besides, who never advertised: the list would be long enough with them."""
    run = Run(session(7, adversary="passive", fewest=4), {"advert": ["site-004", "site-005", "site-006"]}, tamper=only(
        Survivors, lambda _site, m: [Survivors(tuple(sorted({*m.names, "site-006", "nobody"})))]  # type: ignore[union-attr]
    ))  # fmt: skip
    run.play()
    assert all("sites with an advert; got nobody, site-006 besides" in reason for reason in refusals(run).values())
    assert len(refusals(run)) == 4


@pytest.mark.parametrize("change", [
    {"round": 6}, {"run": "other"}, {"purpose": "evaluation"}, {"session_id": b"t" * 16}, {"model_digest": "n" * 64},
    {"plan_digest": "q" * 64}, {"adversary": "passive"}, {"fewest": 6}, {"colluders": 1}, {"dim": 4},
])  # fmt: skip
def test_keys_of_another_round_model_plan_or_session(change: dict[str, object]) -> None:
    """The adverts are genuine, only not for this session: the context they are signed over differs."""
    of = session(7)
    elsewhere = starts(other(of, **change))
    old = {
        site: client.step(state, Begin(elsewhere[site].session.session_id))[1][0] for site, state in elsewhere.items()
    }

    def replay(_site: str, message: ToSite) -> list[ToSite]:
        assert isinstance(message, Adverts)
        advert = old[B]
        assert isinstance(advert, Advert)
        return [Adverts({**message.adverts, B: advert})]

    run = tried(only(Adverts, replay))
    assert "signature of each site for this session; got none of site-001" in refusals(run)[A]
    assert not any(message.STAGE == "shares" for site, message in run.said if site != B)


def test_shares_of_another_session_do_not_open() -> None:
    earlier = Run(
        other(session(7), session_id=b"t" * 16), states=starts(other(session(7), session_id=b"t" * 16), "old")
    )
    earlier.play()
    inboxes = {site: message for site, message in earlier.heard if isinstance(message, Inbox)}
    run = tried(only(Inbox, lambda site, _message: [inboxes[site]]))
    assert all("the envelope from" in reason for reason in refusals(run).values())
    assert len(refusals(run)) == 7
    assert not any(message.STAGE == "masked" for _, message in run.said)  # before a vector leaves, not after


def test_envelopes_of_sites_without_an_advert_or_of_the_reader_itself() -> None:
    for name in ("site-006", "nobody", A):

        def add(site: str, message: ToSite, name: str = name) -> list[ToSite]:
            assert isinstance(message, Inbox)
            return [Inbox({**message.envelopes, name: message.envelopes["site-003"]}) if site == A else message]

        run = Run(session(7), {"advert": ["site-006"]}, tamper=only(Inbox, add))
        run.play()
        assert f"envelopes of this site's neighbours; got some of {name}" in refusals(run)[A]


def test_swapped_keys() -> None:
    """The coordinator puts its own keys in the place of a site's: it would know what is shared with that site."""
    mine = ExchangeKey.draw(rng("coordinator"))

    def swap(_site: str, message: ToSite) -> list[ToSite]:
        assert isinstance(message, Adverts)
        true = message.adverts[B]
        return [Adverts({**message.adverts, B: Advert(mine.public, true.mask, true.commitment, true.signature)})]

    run = tried(only(Adverts, swap))
    assert "none of site-001" in refusals(run)[A]
    assert "this site's own advert; got another" in refusals(run)[B]
    assert set(refusals(run)) == set(run.of.cohort)


def test_adverts_of_two_sites_exchanged() -> None:
    def exchange(_site: str, message: ToSite) -> list[ToSite]:
        assert isinstance(message, Adverts)
        return [Adverts({**message.adverts, A: message.adverts[B], B: message.adverts[A]})]

    assert set(refusals(tried(only(Adverts, exchange)))) == set(session(7).cohort)


def test_a_site_in_league_that_takes_another_ones_keys() -> None:
    of, (first, second) = session(7), identities(7)[:2]
    adverts = {s: client.step(state, Begin(of.session_id))[1][0] for s, state in starts(of).items()}
    copied = adverts[first.name]
    assert isinstance(copied, Advert)
    forged = second.signing.sign(advert_text(of, second.name, copied))
    adverts[second.name] = Advert(copied.channel, copied.mask, copied.commitment, forged)
    state = starts(of)["site-003"]
    state, _ = client.step(state, Begin(of.session_id))
    _, answers = client.step(state, Adverts(adverts))  # type: ignore[arg-type]
    assert "no two are equal" in answers[0].reason  # type: ignore[union-attr]


def test_a_second_unmasking() -> None:
    """After the first, with one survivor turned into a dropout."""
    run = tried(lambda _site, message: [message], adversary="passive")
    assert len(revealed(run)) == 7
    fewer = Survivors(tuple(n for n in run.of.cohort if n != B))
    for event in (fewer, Votes({})):
        state, answers = client.step(run.states[A], event)
        assert [type(answer) for answer in answers] == [Refused]
        _, answers = client.step(state, Votes({}))
        assert [type(answer) for answer in answers] == [Refused]


def test_a_second_vector_in_one_session() -> None:
    run = tried(lambda _site, message: [message])
    words = Contribution(run.states[A].session.ring.lift(np.arange(3)))
    _, answers = client.step(run.states[A], words)
    assert [type(answer) for answer in answers] == [Refused]


def test_different_models_to_different_sites() -> None:
    """The site that was given another model signs and expects another context: nobody accepts its keys, nor it theirs."""
    of = session(7, adversary="passive")
    states = starts(of) | {B: starts(other(of, model_digest="n" * 64))[B]}
    run = Run(of, states=states)
    end = run.play()
    assert isinstance(end, server.Done)
    assert B not in end.survivors
    assert end.dropped[B].stage == "advert"

    # A coordinator that passes its advert on all the same is refused by all.
    adverts = {s: client.step(state, Begin(of.session_id))[1][0] for s, state in states.items()}
    for site, state in states.items():
        begun, _ = client.step(state, Begin(of.session_id))
        _, answers = client.step(begun, Adverts(adverts))  # type: ignore[arg-type]
        assert [type(answer) for answer in answers] == [Refused], site


def test_a_changed_roster() -> None:
    of, mine = session(7), SigningKey.draw(rng("coordinator"))
    sybil = Member("site-007", mine.public, ExchangeKey.draw(rng("sybil")).public)
    fakes = [
        Roster.signed([*of.roster.members, sybil], mine),  # signed by someone else
        Roster((*of.roster.members, sybil), of.roster.signature),  # one site more
        Roster(of.roster.members[:-1], of.roster.signature),  # one less
        Roster((Member(A, mine.public, of.roster.members[0].sealing), *of.roster.members[1:]), of.roster.signature),
    ]
    for fake in fakes:
        cohort = tuple(member.name for member in fake.members)
        with pytest.raises(ProtocolError, match="the consortium's signature"):
            client.start(
                other(of, roster=fake, cohort=cohort, fewest=6),
                identities(7)[0],
                consortium=CONSORTIUM.public,
                rng=rng(),
            )
    # A roster that the consortium did sign, but with other keys than this site's.
    stale = Roster.signed([Member(A, mine.public, sybil.sealing), *of.roster.members[1:]], CONSORTIUM)
    with pytest.raises(ProtocolError, match="its own keys in the roster"):
        client.start(other(of, roster=stale), identities(7)[0], consortium=CONSORTIUM.public, rng=rng())


def test_another_roster_is_another_context() -> None:
    of = session(7)
    assert other(of, roster=roster(8)).context != of.context


def forged_by_nobody(_site: str, signature: bytes) -> bytes:
    return bytes([signature[0] ^ 1]) + signature[1:]


@pytest.mark.parametrize("forge", [
    forged_by_nobody, lambda _site, _signature: bytes(64), lambda _site, _signature: b"",
    lambda site, _signature: identities(7)[6].signing.sign(b"anything"),
])  # fmt: skip
def test_forged_votes(forge: Callable[[str, bytes], bytes]) -> None:
    run = tried(only(Votes, lambda site, m: [Votes({s: forge(s, v) for s, v in m.signatures.items()})]))  # type: ignore[union-attr]
    assert set(refusals(run)) == set(run.of.cohort)
    assert revealed(run) == {}
    silent_afterwards(run, A)


def test_votes_of_strangers_and_one_site_counted_under_many_names() -> None:
    run = tried(only(Votes, lambda site, m: [Votes({**m.signatures, "nobody": bytes(64)})]))  # type: ignore[union-attr]
    assert "votes of survivors; got some of nobody" in refusals(run)[A]
    run = tried(only(Votes, lambda site, m: [
        Votes(dict.fromkeys(m.signatures, m.signatures[B]))  # type: ignore[union-attr]
    ]))  # fmt: skip
    assert revealed(run) == {}


def test_too_few_votes() -> None:
    run = tried(only(Votes, lambda site, m: [Votes(dict(list(m.signatures.items())[:4]))]))  # type: ignore[union-attr]
    assert "at least 5 votes; got 4" in refusals(run)[A]
    assert revealed(run) == {}


@pytest.mark.parametrize("early", [Survivors(("site-000", "site-001", "site-002")), Votes({}), Inbox({}), Adverts({})])
def test_a_stage_out_of_its_order(early: ToSite) -> None:
    _, answers = client.step(starts(session(7))[A], early)
    assert "its events in their order" in answers[0].reason  # type: ignore[union-attr]
