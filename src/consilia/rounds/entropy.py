"""Where secret randomness comes from: the operating system, or in the reproducible mode the public seed."""

import secrets

from consilia.core.randomness import SecretRng, SharedSeed


class Entropy:
    """Hands out secret streams.

    Guarantees:
        Without a seed every stream has a fresh 256-bit key from the operating system, so a restart never repeats noise.
        With a seed every stream can be recomputed by anyone: a run in that mode claims no epsilon.
    """

    def __init__(self, reproducible: SharedSeed | None = None) -> None:
        self._seed = reproducible

    @property
    def reproducible(self) -> bool:
        """Whether streams follow from the public seed."""
        return self._seed is not None

    def stream(self, *labels: str | int) -> SecretRng:
        """Return the stream for one purpose, e.g. ("train", site, round)."""
        if self._seed is not None:
            return SecretRng.reproducible_from(self._seed.derive("not secret", *labels))
        return SecretRng(secrets.token_bytes(32))
