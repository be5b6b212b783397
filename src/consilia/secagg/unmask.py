"""Taking the masks off a sum: which secrets must be rebuilt, and what they cost.

A sum of survivors still carries each one's own mask, and the masks they share with sites that dropped out after sharing keys.
Of each of the first the seed is rebuilt, of each of the second the private mask key; never both of one site.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from consilia.core.errors import ProtocolError
from consilia.core.ring import Words
from consilia.crypto import shamir
from consilia.crypto.keys import ExchangeKey
from consilia.crypto.prg import Mask, apply_masks
from consilia.secagg.graph import Graph
from consilia.secagg.keyring import adds, commit_seed, own_mask_key, pair_mask_key
from consilia.secagg.messages import Advert
from consilia.secagg.params import Session


@dataclass(frozen=True)
class Unmasking:
    """What is known once shares have come.

    Attributes:
        session: The session.
        graph: Who shares masks with whom.
        adverts: By site.
        bound: What every key is bound to.
        sharing: The sites whose shares everyone was sent.
        survivors: Those of them whose vectors are in the sum.
        shares: By owner, by holder's number, as they were committed to.
    """

    session: Session
    graph: Graph
    adverts: Mapping[str, Advert]
    bound: bytes
    sharing: frozenset[str]
    survivors: frozenset[str]
    shares: Mapping[str, Mapping[int, bytes]] = field(repr=False)


def unmask(total: Words, known: Unmasking) -> None:
    """Take all masks off a sum, in place: one mask for each survivor and for each pair of a survivor and a dropped neighbour.

    Raises:
        ProtocolError: If a secret cannot be rebuilt from its shares. Whose it is, is named.
    """
    lagrange: dict[tuple[int, ...], dict[int, int]] = {}
    for dropped in sorted(known.sharing - known.survivors):
        apply_masks(total, list(_of_dropped(dropped, known, lagrange)))
    apply_masks(total, [_of_survivor(site, known, lagrange) for site in sorted(known.survivors)])


def _of_dropped(site: str, known: Unmasking, lagrange: dict[tuple[int, ...], dict[int, int]]) -> Iterator[Mask]:
    key = ExchangeKey(_rebuilt(site, known, lagrange))
    if key.public != known.adverts[site].mask:
        raise _wrong(site)
    for peer in known.graph.neighbours(site):
        if peer in known.survivors:
            shared = pair_mask_key(key, site, peer, known.adverts[peer].mask, known.bound)
            yield Mask(shared, add=not adds(peer, site))


def _of_survivor(site: str, known: Unmasking, lagrange: dict[tuple[int, ...], dict[int, int]]) -> Mask:
    seed = _rebuilt(site, known, lagrange)
    if commit_seed(known.session, site, seed) != known.adverts[site].commitment:
        raise _wrong(site)
    return Mask(own_mask_key(seed, site, known.bound), add=False)


def _rebuilt(site: str, known: Unmasking, lagrange: dict[tuple[int, ...], dict[int, int]]) -> bytes:
    shares = known.shares.get(site, {})
    chosen = tuple(sorted(shares)[: known.graph.threshold])
    if len(chosen) < known.graph.threshold:
        raise ProtocolError.of(f"the secret of {site}", needs=f"{known.graph.threshold} shares", got=f"{len(chosen)}",
                               hint="Too many of the sites that hold them did not answer")  # fmt: skip
    if chosen not in lagrange:  # in a full graph the same holders answer for every owner
        lagrange[chosen] = shamir.weights(chosen)
    return shamir.combine(shares, lagrange[chosen], who=f"the secret of {site}")


def _wrong(site: str) -> ProtocolError:
    return ProtocolError.of(f"the secret of {site}", needs="shares of what it advertised", got="shares of something else",
                            hint="That site shared it wrongly: leave it out of the next session")  # fmt: skip
