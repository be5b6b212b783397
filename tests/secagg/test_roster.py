"""The roster of sites: what the consortium signed, and the part of it that takes part in one run."""

from dataclasses import replace

import pytest

from consilia.core.errors import ProtocolError
from consilia.core.randomness import SecretRng, SharedSeed
from consilia.crypto.signing import SigningKey
from consilia.secagg.roster import Identity, Roster

RNG = SecretRng.reproducible_from(SharedSeed.of(5))
CONSORTIUM = SigningKey.draw(RNG.derive("consortium"))
MEMBERS = [Identity.draw(name, RNG.derive(name)).member for name in ("d", "b", "a", "c")]
WHOLE = Roster.signed(MEMBERS, CONSORTIUM)


def test_some_of_the_sites_are_a_roster_that_verifies() -> None:
    some = WHOLE.among({"c", "a", "unknown"})
    some.verify(CONSORTIUM.public)
    assert [member.name for member in some.members] == ["a", "c"]
    assert some.digest != WHOLE.digest
    assert some.among({"b"}).by_name.keys() == {"b"}
    assert some.among("abcd") == WHOLE
    assert Roster.from_json(some.to_json()) == WHOLE


def test_a_site_that_the_consortium_did_not_sign_is_found() -> None:
    some = WHOLE.among({"a", "c"})
    stranger = Identity.draw("e", RNG.derive("e")).member
    for forged in (
        replace(some, members=(*some.members, stranger)),
        replace(some, others=some.others[1:]),
        replace(some, others=(*some.others, stranger)),
        replace(some, members=(some.members[1], some.members[0])),
        replace(some, others=(*some.others, some.members[0])),
        replace(some, members=(replace(some.members[0], verifying=stranger.verifying), some.members[1])),
    ):
        with pytest.raises(ProtocolError, match="the roster of sites"):
            forged.verify(CONSORTIUM.public)
