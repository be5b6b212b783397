"""What sites sent in a round, where it lies: the coordinator keeps no copy."""

from collections.abc import Iterator, Mapping

from consilia.core.update import Bytes, Vector
from consilia.pipeline.chain import Chain


class Updates(Mapping[str, Vector]):
    """Admitted answers by name, in order of name; a vector is read from its frame when it is asked for.

    A frame stays with the transport, which keeps large ones in files. So the coordinator's memory does not grow with the
    number of sites: plain float32 is a view of the frame, what other codecs wrote is decoded each time anew.

    Args:
        chain: Reads a payload.
        payloads: By site; each was read once before, so that none fails now.
    """

    def __init__(self, chain: Chain, payloads: Mapping[str, Bytes]) -> None:
        self._chain = chain
        self._payloads = dict(sorted(payloads.items()))

    def __getitem__(self, site: str) -> Vector:
        """Return a site's vector, shape (sent,); it may be read-only."""
        return self._chain.codec.unpack(self._payloads[site], self._chain.sent, who=site)

    def __iter__(self) -> Iterator[str]:
        """Go over the sites in order of name."""
        return iter(self._payloads)

    def __len__(self) -> int:
        """Return how many answered."""
        return len(self._payloads)
