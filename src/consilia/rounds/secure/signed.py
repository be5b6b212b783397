"""Messages of a key ceremony: from one site to others, through a coordinator that can read them and must not change them."""

from collections.abc import Sequence
from hashlib import sha256

from consilia.core.canonical import canonical_bytes
from consilia.core.errors import ProtocolError
from consilia.crypto.signing import SIGNATURE_SIZE, verify
from consilia.secagg.framing import join
from consilia.secagg.roster import Identity, Roster


def run_context(run: str, plan_digest: str, roster: Roster) -> bytes:
    """Return what a key is for, 32 bytes: a run of a plan by these sites."""
    return sha256(
        canonical_bytes({"consilia": "keys 1", "run": run, "plan": plan_digest, "roster": roster.digest})
    ).digest()


def sign(identity: Identity, labels: Sequence[bytes], content: bytes) -> bytes:
    """Return a site's signature over labels and content, then the content."""
    return identity.signing.sign(_text(identity.name, labels, content)) + content


def read(roster: Roster, site: str, labels: Sequence[bytes], signed: bytes) -> bytes:
    """Return the content that a site signed.

    Raises:
        ProtocolError: If the roster has no such site, or it did not sign this for these labels.
    """
    member, content = roster.by_name.get(site), bytes(signed[SIGNATURE_SIZE:])
    if member is None or not verify(member.verifying, bytes(signed[:SIGNATURE_SIZE]), _text(site, labels, content)):
        raise ProtocolError.of(f"a message of site {site}", needs="its signature, for this step of this run", got="another",
                               hint="The coordinator is broken or hostile: tell the consortium")  # fmt: skip
    return content


def _text(site: str, labels: Sequence[bytes], content: bytes) -> bytes:
    return b"consilia ceremony 1\n" + join([site.encode(), *labels, content])
