"""How the vector that leaves a site is written as bytes: the port, and plain float32."""

from dataclasses import dataclass
from typing import Protocol

from consilia.core.errors import ProtocolError
from consilia.core.randomness import SecretRng
from consilia.core.spec import UpdateSpec
from consilia.core.update import Bytes, Vector
from consilia.core.wire import pack_vector, unpack_vector


class Codec(Protocol):
    """The last step at a site and the first at the coordinator, who reads each site's vector before adding them."""

    @property
    def name(self) -> str:
        """What records and forecasts call it."""
        ...

    def contract(self, spec: UpdateSpec) -> UpdateSpec:
        """Return the spec of what the coordinator reads, or raise `IllegalChain`.

        Args:
            spec: Of the vector as it leaves the site: before any noise that the coordinator adds.
        """
        ...

    def pack(self, vector: Vector, rng: SecretRng) -> bytes:
        """Return a vector of shape (dim,) as bytes.

        Args:
            vector: What the site's half of the chain made.
            rng: The site's secret randomness; a codec that rounds draws from it.

        Raises:
            ProtocolError: If the vector is nothing this codec can send; the site loses its turn.
        """
        ...

    def unpack(self, payload: Bytes, dim: int, *, who: str) -> Vector:
        """Return the vector, shape (dim,); it may be read-only. Memory is bounded by `dim`, whatever the payload claims.

        Args:
            payload: What came; nothing about it is trusted.
            dim: Length of the vector, from the plan.
            who: The site it came from.

        Raises:
            ProtocolError: If it is not what `pack` could have written.
        """
        ...

    def expected_size(self, dim: int) -> int:
        """Return the bytes of a payload at most, for a forecast."""
        ...


def malformed(who: str, needs: str, got: str) -> ProtocolError:
    """Return the error for a payload that `pack` could not have written."""
    return ProtocolError.of(who, needs=needs, got=got,
                            hint="Both ends must have checked the same plan: compare their digests")  # fmt: skip


@dataclass(frozen=True)
class Dense:
    """Four bytes a coordinate. Values that are not finite pass: whoever admits the vector looks at them."""

    name: str = "float32"

    def contract(self, spec: UpdateSpec) -> UpdateSpec:
        """Nothing changes."""
        return spec

    def pack(self, vector: Vector, rng: SecretRng) -> bytes:
        """Return 4 dim bytes; nothing is drawn."""
        return pack_vector(vector)

    def unpack(self, payload: Bytes, dim: int, *, who: str) -> Vector:
        """Return the vector, shape (dim,).

        Raises:
            ProtocolError: If the payload has another length.
        """
        return unpack_vector(payload, dim, who=who)

    def expected_size(self, dim: int) -> int:
        """Return 4 dim."""
        return 4 * dim
