"""A site's rows under a key of its own, so that the chain may show that they changed and nobody can test guesses of them."""

import hmac
import secrets

from sqlalchemy import Connection, insert, select

from consilia.store.tables import site_key


def keyed(connection: Connection, fingerprint: str) -> str:
    """Return the fingerprint under the site's key: equal for equal rows.

    Guarantees:
        The chain's head leaves the site as a witness. Were the plain digest in it, whoever knows all rows but one could test
        guesses of that one against the head; without the key (256 bits, in the site's file, made on first use) nobody can.
    """
    key = connection.execute(select(site_key.c.key)).scalar()
    if key is None:
        key = secrets.token_bytes(32)
        connection.execute(insert(site_key).values(name="fingerprint", key=key))
    return hmac.new(key, fingerprint.encode(), "sha256").hexdigest()
