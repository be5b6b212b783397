"""Messages survive their bytes, equal ones are equal bytes, and what is no message is refused."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.secagg.consortium import CONSORTIUM, Run, identities, roster, session

from consilia.core.errors import ProtocolError
from consilia.crypto.signing import SigningKey
from consilia.secagg.messages import Inbox, Refused, Reveal, Shares, Survivors, Votes, from_site, to_site
from consilia.secagg.roster import Member, Roster


def test_all_messages_of_a_session_survive_their_bytes() -> None:
    run = Run(session(4))
    run.play()
    assert {m.STAGE for _, m in run.said} == {"advert", "shares", "masked", "vote", "reveal"}
    assert {m.STAGE for _, m in run.heard} == {"begin", "adverts", "inbox", "survivors", "votes"}
    for _, said in run.said:
        assert from_site(said.STAGE, memoryview(said.to_bytes()), who="x") == said
    for _, heard in run.heard:
        assert to_site(heard.STAGE, memoryview(heard.to_bytes()), who="x") == heard


@given(
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), st.binary(max_size=9), max_size=6)
)
def test_mappings_of_any_names(parts: dict[str, bytes]) -> None:
    for kind in (Shares, Inbox, Votes, Reveal):
        message = kind(parts)
        assert kind.from_bytes(message.to_bytes(), who="x") == message
        assert kind(dict(reversed(parts.items()))).to_bytes() == message.to_bytes()
    names = Survivors(tuple(sorted(parts)))
    assert Survivors.from_bytes(names.to_bytes(), who="x") == names
    assert Refused.from_bytes(Refused("ü").to_bytes(), who="x") == Refused("ü")


@given(st.binary(max_size=80))
def test_any_bytes_are_a_message_or_refused(raw: bytes) -> None:
    for stage in ("begin", "adverts", "inbox", "survivors", "votes"):
        with suppress(ProtocolError):
            assert to_site(stage, raw, who="x").to_bytes() == raw
    for stage in ("advert", "shares", "masked", "vote", "reveal", "refused"):
        with suppress(ProtocolError):
            assert from_site(stage, raw, who="x").to_bytes() == raw


@pytest.mark.parametrize("raw", [
    bytes(3), bytes([0, 0, 0, 9]) + b"short", bytes([255] * 8), bytes(4) + b"\0\0\0\1\xff" + bytes(4),
    Shares({"b": b""}).to_bytes() + Shares({"a": b""}).to_bytes(), 2 * Shares({"a": b""}).to_bytes(), bytes(4),
    b"\0\0\0\1\xff" + bytes(4),
])  # fmt: skip
def test_what_is_no_mapping(raw: bytes) -> None:
    with pytest.raises(ProtocolError, match="a message of secure aggregation"):
        Shares.from_bytes(raw, who="x")


@pytest.mark.parametrize("stage", ["", "begin", "nothing", "Advert"])
def test_no_such_stage(stage: str) -> None:
    with pytest.raises(ProtocolError, match="a stage that sites have no message for"):
        from_site(stage, b"", who="x")
    with pytest.raises(ProtocolError, match="a stage that the coordinator has no message for"):
        to_site("reveal", b"", who="x")


def test_a_roster_survives_its_plain_form_and_is_the_consortiums() -> None:
    true = roster(4)
    read = Roster.from_json(true.to_json())
    read.verify(CONSORTIUM.public)
    assert read == true
    assert read.digest == true.digest
    with pytest.raises(ProtocolError, match="the consortium's signature"):
        read.verify(SigningKey(bytes(32)).public)


def test_a_roster_in_which_two_share_a_name_or_a_key() -> None:
    one, two = (identity.member for identity in identities(2))
    for second in (one, Member("x", one.verifying, two.sealing), Member("x", two.verifying, one.sealing),
                   Member("x", two.verifying, b"short")):  # fmt: skip
        with pytest.raises(ProtocolError, match="distinct keys of 32 bytes"):
            Roster.signed([one, second], CONSORTIUM).verify(CONSORTIUM.public)


def test_what_is_no_roster() -> None:
    plain = roster(3).to_json()
    nobody = {"verifying": "", "sealing": ""}
    wrong: list[object] = [None, [], {}, {**plain, "signature": "x"}, {**plain, "members": None}]
    wrong += [{**plain, "members": [one]} for one in ({}, {**nobody, "name": 1}, {**nobody, "name": "\ud800"})]
    for value in wrong:
        with pytest.raises(ProtocolError, match="the roster of sites"):
            Roster.from_json(value)


def test_a_list_of_survivors_has_names_only() -> None:
    with pytest.raises(ProtocolError, match="a message of secure aggregation"):
        Survivors.from_bytes(Shares({"a": b"x"}).to_bytes(), who="x")


def test_an_identity_never_shows_its_keys() -> None:
    one = identities(1)[0]
    assert one.signing.seed.hex() not in repr(one)
    assert repr(one.sealing.private) not in repr(one)
