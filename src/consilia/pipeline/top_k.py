"""Each site's own largest coordinates; what was left out is added to its next update."""

from dataclasses import dataclass

import numpy as np

from consilia.core.errors import IllegalChain, PlanError, ProtocolError
from consilia.core.spec import Encoding, Unit, UpdateSpec
from consilia.pipeline.transform import Array, SiteContext, SumContext

RESIDUAL = "top_k.residual"


@dataclass(frozen=True)
class TopK:
    """Send the k coordinates of largest absolute value, the others as zero, with error feedback.

    The site's state holds what was never sent, the residual, shape (d,), float32. A round works on vector + residual: k of
    its coordinates are sent as they are, the rest is the new residual. So all that was sent and the residual always add up
    to all that came in; nothing is lost, only late.

    Nothing is bounded: which coordinates are sent depends on the data, and the residual carries every earlier round's
    data, so there is no sensitivity to scale noise for. Nor can sums be masked, since each site sends other coordinates.

    Args:
        k: How many are sent at most.
    Source:
        Stich, Cordonnier and Jaggi (2018), Sparsified SGD with Memory, algorithm 1.
    """

    k: int

    def __post_init__(self) -> None:
        """Refuse a k below 1.

        Raises:
            PlanError: If it is.
        """
        if self.k < 1:
            raise PlanError.of("top-k", needs="at least 1 coordinate", got=self.k,
                               hint="Set messages.top_k to a larger share")  # fmt: skip

    def contract(self, spec: UpdateSpec) -> UpdateSpec:
        """Need all of a real vector for which no privacy is claimed; drop every bound and the shared coordinates.

        Raises:
            IllegalChain: If a unit is protected, noise was added, coordinates were left out, or values are integers.
        """
        if spec.unit is not Unit.NONE or spec.noised:
            raise IllegalChain.of(
                "top-k", needs="a run without a privacy claim",
                got="noise in the update already" if spec.noised else f"privacy for one {spec.unit}",
                hint="Set messages.random_k or messages.quantize_bits, which compose with noise",
            )  # fmt: skip
        if spec.encoding is not Encoding.REAL:
            raise IllegalChain.of("top-k", needs="real values", got="integers in a ring",
                                  hint="A secure sum needs every site's coordinates: use messages.random_k")  # fmt: skip
        if spec.kept is not None or not spec.shared_support:
            raise IllegalChain.of("top-k", needs="all coordinates", got="coordinates left out already",
                                  hint="Set messages.random_k or messages.top_k, not both")  # fmt: skip
        return spec.with_(l2_bound=None, range_linf=None, shared_support=False)

    def noise_multiplier(self, own: float) -> float | None:
        """It draws no noise."""
        return None

    def encode(self, vector: Array, context: SiteContext) -> Array:
        """Return the chosen coordinates and zeros, shape (d,), and write the new residual to the state.

        Raises:
            ProtocolError: If a value is not finite: it would stay in the residual for ever.
        """
        residual = context.state.get(RESIDUAL)
        with np.errstate(over="ignore"):  # caught below
            pending = np.array(vector, np.float32)
            if residual is not None:
                pending += residual.astype(np.float32)
        if not np.isfinite(pending).all():
            raise ProtocolError.of("top-k", needs="finite values", got="NaN or infinite values",
                                   hint="Training diverged: lower the rates")  # fmt: skip
        sent = np.zeros_like(pending)
        chosen = np.argpartition(np.abs(pending), -self.k)[-self.k :] if self.k < len(pending) else slice(None)
        sent[chosen] = pending[chosen]
        pending[chosen] = 0.0
        context.state[RESIDUAL] = pending
        return sent

    def decode(self, total: Array, context: SumContext) -> Array:
        """Nothing to undo."""
        return total
