"""Files of private Ed25519 and X25519 keys."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from consilia.core.canonical import canonical_bytes
from consilia.crypto.keys import KEY_SIZE, ExchangeKey
from consilia.crypto.signing import SEED_SIZE, SigningKey
from consilia.secagg.roster import Identity
from consilia.transport.credentials import files
from consilia.transport.credentials.names import ROLES, Role, name
from consilia.transport.credentials.reading import Kind, Reader, hexadecimal, one_of

_IDENTITY = {
    "format": one_of(["consilia identity 1"]), "name": name, "role": one_of(ROLES), "signing": hexadecimal(SEED_SIZE),
    "sealing": hexadecimal(KEY_SIZE),
}  # fmt: skip
_CONSORTIUM = {"format": one_of(["consilia consortium key 1"]), "name": name, "signing": hexadecimal(SEED_SIZE)}


def identity_bytes(identity: Identity, role: Role) -> bytes:
    """Return what `read_identity` reads."""
    return canonical_bytes({
        "format": "consilia identity 1", "name": identity.name, "role": role, "signing": identity.signing.seed.hex(),
        "sealing": identity.sealing.private.hex(),
    }) + b"\n"  # fmt: skip


def read_identity(path: Path) -> tuple[Identity, Role]:
    """Return a member's own keys and its role.

    Raises:
        StoreError: If the file is none, is damaged, or can be read by others.
    """
    found = _read(path, _IDENTITY)
    return Identity(found["name"], SigningKey(found["signing"]), ExchangeKey(found["sealing"])), found["role"]


def consortium_bytes(consortium: str, key: SigningKey) -> bytes:
    """Return what `read_consortium` reads."""
    return (
        canonical_bytes({"format": "consilia consortium key 1", "name": consortium, "signing": key.seed.hex()}) + b"\n"
    )


def read_consortium(path: Path) -> SigningKey:
    """Return the consortium's key.

    Raises:
        StoreError: If the file is none, is damaged, or can be read by others.
    """
    return SigningKey(_read(path, _CONSORTIUM)["signing"])


def _read(path: Path, kinds: Mapping[str, Kind]) -> dict[str, Any]:
    reader = Reader(f"key {path}", secret=True)
    found = reader.table(reader.document(files.read_secret(path)), kinds)
    reader.check()
    if found is None:
        raise TypeError("a table without faults has fields")
    return found
