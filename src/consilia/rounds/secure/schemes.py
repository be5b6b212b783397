"""The two halves of an encryption under which sums can be opened: what a site does, and what the coordinator does."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from consilia.core.randomness import SecretRng
from consilia.core.update import Bytes

Ask = Callable[[str, Mapping[str, bytes]], dict[str, bytes]]
"""(step, site -> content) -> what the sites that answered said."""


class SiteScheme(Protocol):
    """A site's half: it takes part in the making of keys, encrypts, and helps to open sums."""

    def step(self, step: str, content: bytes, rng: SecretRng) -> bytes:
        """Take a step of the ceremony that makes the keys.

        Raises:
            ProtocolError: If it is none, or out of turn.
        """
        ...

    def require_key(self) -> None:
        """Check that the ceremony has come to its end here.

        Raises:
            ProtocolError: If there is no key yet.
        """
        ...

    def encrypt(self, context: bytes, values: NDArray[np.int64], rng: SecretRng) -> bytes:
        """Encrypt the one vector of a context.

        Raises:
            ProtocolError: If there is no key yet.
        """
        ...

    def open(self, content: bytes, context: bytes, dim: int, cohort: Iterable[str], rng: SecretRng) -> bytes:
        """Answer the question to open a sum of this context, once.

        Raises:
            ProtocolError: If it is not the sum of enough vectors of this context, or the context was answered for.
        """
        ...


class CoordinatorScheme(Protocol):
    """The coordinator's half: it carries messages, adds what it cannot read, and has sums opened."""

    def ceremony(self, ask: Ask) -> None:
        """Let the sites make their keys.

        Raises:
            ProtocolError: If sites are missing.
        """
        ...

    def add(self, payloads: Iterable[Bytes], dim: int) -> bytes:
        """Return the encrypted sum; raises `ProtocolError` on what is malformed."""
        ...

    def open(
        self, total: bytes, context: bytes, dim: int, contributors: Iterable[str], cohort: Iterable[str], ask: Ask
    ) -> NDArray[np.int64]:
        """Have a sum opened, shape (dim,).

        Raises:
            ProtocolError: If the sites that must help do not.
        """
        ...
