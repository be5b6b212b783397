"""Take the roster's file apart: its fields and the consortium's signature over them."""

from typing import Any

from consilia.core.canonical import canonical_bytes
from consilia.crypto.keys import KEY_SIZE
from consilia.crypto.signing import SIGNATURE_SIZE, verify
from consilia.transport.credentials.names import ROLES, name
from consilia.transport.credentials.reading import (
    Reader,
    anything,
    encoded,
    hexadecimal,
    moment,
    one_of,
    text,
    whole,
)  # fmt: skip

MOST_MEMBERS, MOST_REVOKED = 1000, 1000
MOST_DER = 2048  # bytes of a certificate; those issued here take about 600
LONGEST_REASON = 200
_KEY = hexadecimal(KEY_SIZE)
_BOOK = {
    "format": one_of(["consilia book 1"]), "consortium": name, "public": _KEY, "version": whole(1, 10**9), "issued": moment,
    "authority": encoded(MOST_DER), "members": anything, "revoked": anything,
    "sites_signature": hexadecimal(SIGNATURE_SIZE), "signature": hexadecimal(SIGNATURE_SIZE),
}  # fmt: skip
_MEMBER = {"name": name, "role": one_of(ROLES), "verifying": _KEY, "sealing": _KEY, "der": encoded(MOST_DER)}
_REVOKED = {
    "name": name, "role": one_of(ROLES), "verifying": _KEY, "sealing": _KEY, "serial": text(40), "when": moment,
    "reason": text(LONGEST_REASON),
}  # fmt: skip


def checked(raw: bytes, who: str, consortium: bytes | None, purpose: bytes) -> dict[str, Any]:
    """Return the fields of a roster that the consortium signed; members and revoked ones as tables.

    Raises:
        StoreError: With every fault.
    """
    reader = Reader(who)
    value = reader.document(raw)
    found = reader.table(value, _BOOK)
    if isinstance(value, dict):
        members = reader.tables(value.get("members"), _MEMBER, "members", MOST_MEMBERS)
        revoked = reader.tables(value.get("revoked"), _REVOKED, "revoked", MOST_REVOKED)
    reader.check()
    if found is None or not isinstance(value, dict):
        raise TypeError("a table without faults has fields")
    found.pop("format")
    if consortium not in (None, found["public"]):
        reader.fault("to come from the consortium whose key this folder has", f"one of another, named {found['consortium']}",
                     "Ask your consortium's officer; a consortium with a new key has a new member folder")  # fmt: skip
    body = {key: inner for key, inner in value.items() if key != "signature"}
    if not verify(consortium or found["public"], found["signature"], purpose + canonical_bytes(body)):
        reader.fault(
            "the consortium's signature over exactly this content",
            "another",
            "It was changed on its way: ask for it again",
        )
    reader.check()
    return {**found, "members": members, "revoked": revoked}
