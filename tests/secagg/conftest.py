"""Quick cryptography for tests that play many sessions of the same sites."""

from functools import lru_cache

import pytest

from consilia.crypto import signing
from consilia.crypto.keys import ExchangeKey
from consilia.secagg import rules


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sites of one name draw the same keys in every session, so each signature and each agreement is worked out once."""
    monkeypatch.setattr(rules, "verify", lru_cache(maxsize=None)(signing.verify))
    agree = ExchangeKey.agree
    known = lru_cache(maxsize=None)(lambda private, peer: agree(ExchangeKey(private), peer, who="it"))
    monkeypatch.setattr(ExchangeKey, "agree", lambda self, peer, *, who: known(self.private, peer))
