"""Two kinds of randomness that must never be confused.

`SharedSeed` is public: everyone in a run may know it (client sampling, simulated partitions, model initialisation).
`SecretRng` is secret: noise and record sampling accept nothing else. A type checker refuses to swap them.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

_BLOCK = 16  # bytes that AES gives at a time
_PAIRS = 1 << 14  # pairs of normals at a time: what is in between stays in the processor's cache


def _derive(key: bytes, labels: tuple[str | int, ...]) -> bytes:
    # BLAKE2b as a keyed PRF; every label is length-prefixed so that ("a", "bc") and ("ab", "c") differ.
    state = hashlib.blake2b(key=key, digest_size=32)
    for label in labels:
        raw = str(label).encode()
        state.update(len(raw).to_bytes(4, "big") + raw)
    return state.digest()


@dataclass(frozen=True)
class SharedSeed:
    """A public seed; the same labels always give the same stream."""

    key: bytes

    @classmethod
    def of(cls, seed: int) -> "SharedSeed":
        """Make the root seed of a run from the plan's number."""
        return cls(_derive(b"consilia shared seed", (seed,)))

    def derive(self, *labels: str | int) -> "SharedSeed":
        """Return the child seed for these labels."""
        return SharedSeed(_derive(self.key, labels))

    def generator(self) -> np.random.Generator:
        """Return a counter-based generator (Philox), equal on every platform."""
        return np.random.Generator(np.random.Philox(key=int.from_bytes(self.key[:16], "big")))

    def integer(self) -> int:
        """Return a 63-bit number, for libraries that want an integer seed."""
        return int.from_bytes(self.key[:8], "big") >> 1


@dataclass(frozen=True)
class SecretState:
    """A secret stream as plain values, for another process of the same trust domain: whoever holds it draws the same bytes.

    Attributes:
        key: 32 bytes; `repr` leaves it out.
        position: Bytes that were drawn.
        reproducible: Whether the key follows from a public seed.
    """

    key: bytes = field(repr=False)
    position: int
    reproducible: bool


class SecretRng:
    """A stream of AES-256-CTR bytes under a secret key, with uniform and normal draws.

    The key comes in as an argument: this layer reads no operating-system randomness itself.

    Guarantees:
        Draws are computationally indistinguishable from uniform for anyone without the key.
        `normal` uses the Box-Muller transform on 53-bit uniforms, with cosine and sine both taken from the tangent t of
        half the angle, (1 - t^2) / (1 + t^2) and 2 t / (1 + t^2): values are doubles with |x| <= 8.7, so the law differs
        from the real Gaussian by rounding and by a tail of mass below 1e-17. See docs/guarantees.md, "Floating point".

    Source:
        Box and Muller (1958), A note on the generation of random normal deviates.
    """

    def __init__(self, key: bytes, *, reproducible: bool = False) -> None:
        if len(key) != 32:
            raise ValueError(
                f"SecretRng needs a key of 32 bytes; got {len(key)}. Draw it with secrets.token_bytes(32)."
            )
        self._key = key
        self._position = 0
        self._stream = Cipher(algorithms.AES(key), modes.CTR(bytes(_BLOCK))).encryptor()
        self.reproducible = reproducible

    @classmethod
    def reproducible_from(cls, seed: SharedSeed) -> "SecretRng":
        """Return a stream anyone can recompute: for tests and the reproducible mode, which claims no epsilon."""
        return cls(seed.key, reproducible=True)

    @classmethod
    def resumed(cls, state: SecretState) -> "SecretRng":
        """Return the stream as it stood when `state` was taken."""
        stream = cls(state.key, reproducible=state.reproducible)
        stream.move_to(state.position)
        return stream

    def state(self) -> SecretState:
        """Return what the stream can be resumed from elsewhere. Bytes drawn there must not be drawn here: `move_to`."""
        return SecretState(self._key, self._position, self.reproducible)

    def move_to(self, position: int) -> None:
        """Go on behind the bytes that were drawn elsewhere.

        Args:
            position: Bytes drawn from the stream's beginning.

        Raises:
            ValueError: If the stream is further already: noise would be drawn from the same bytes twice.
        """
        if position < self._position:
            raise ValueError(f"A secret stream only moves forward: it stands at {self._position}; got {position}.")
        blocks, rest = divmod(position, _BLOCK)
        self._stream = Cipher(algorithms.AES(self._key), modes.CTR(blocks.to_bytes(_BLOCK, "big"))).encryptor()
        self._stream.update(bytes(rest))
        self._position = position

    def derive(self, *labels: str | int) -> "SecretRng":
        """Return an independent child stream for these labels."""
        return SecretRng(_derive(self._key, ("child", *labels)), reproducible=self.reproducible)

    def token(self, size: int) -> bytes:
        """Return `size` secret bytes."""
        self._position += size
        return self._stream.update(bytes(size))

    def uniform(self, size: int) -> NDArray[np.float64]:
        """Return `size` uniforms in [0, 1), each a multiple of 2**-53. Shape (size,)."""
        return _uniforms(self.token(8 * size))

    def normal(self, size: int) -> NDArray[np.float64]:
        """Return `size` standard normals, shape (size,)."""
        half = (size + 1) // 2
        out = np.empty((2, half))
        for start in range(0, half, _PAIRS):
            pairs = out[:, start : start + _PAIRS]
            _box_muller(self.uniform(pairs.size).reshape(pairs.shape), pairs)
        return out.ravel()[:size]

    def permutation(self, size: int) -> NDArray[np.int64]:
        """Return a secret order of range(size), shape (size,)."""
        return np.argsort(self.uniform(size), kind="stable")


def normals(streams: Sequence[SecretRng], size: int) -> NDArray[np.float64]:
    """Return what each stream's `normal(size)` gives, shape (streams, size); many small draws at the price of one large.

    Guarantees:
        Row i is computed from the bytes of stream i alone, which moves on as `normal` moves it.
    """
    half = (size + 1) // 2
    if half > _PAIRS:
        return np.array([stream.normal(size) for stream in streams]).reshape(len(streams), size)
    uniforms = _uniforms(b"".join([stream.token(16 * half) for stream in streams])).reshape(len(streams), 2, half)
    out = np.empty_like(uniforms)
    _box_muller(uniforms.transpose(1, 0, 2), out.transpose(1, 0, 2))
    return out.reshape(len(streams), 2 * half)[:, :size]


def _uniforms(words: bytes) -> NDArray[np.float64]:
    return (np.frombuffer(words, dtype="<u8") >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _box_muller(uniforms: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Write normals made of uniforms; both of shape (2, ...)."""
    radius = np.sqrt(-2.0 * np.log1p(-uniforms[0]))  # 1 - u is in (0, 1], so the logarithm is finite
    tangent = np.tan(np.pi * (uniforms[1] - 0.5))  # one tangent is several times quicker than a cosine and a sine
    square = tangent * tangent  # at most 3e32: pi / 2 is no double
    radius /= 1.0 + square
    np.multiply(radius, 1.0 - square, out=out[0])
    np.multiply(radius, 2.0 * tangent, out=out[1])
