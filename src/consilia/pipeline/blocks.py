"""Few bits a coordinate: stochastic rounding with one scale a block, then a lossless code where it helps."""

import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilia.core.errors import IllegalChain, PlanError, ProtocolError
from consilia.core.randomness import SecretRng
from consilia.core.spec import Encoding, Unit, UpdateSpec
from consilia.core.update import Bytes, Vector
from consilia.pipeline.codec import malformed
from consilia.pipeline.packing import Codes, Packing

BLOCK = 512  # coordinates that share a scale
_TIGHT, _DEFLATED = 0, 1


@dataclass(frozen=True)
class Blocks:
    """Each coordinate becomes one of 2^bits - 1 multiples of its block's scale, from -L to L with L = 2^(bits-1) - 1.

    Payload: one flag byte; a little-endian float32 scale for each block of `BLOCK` coordinates; the multiples, shifted by
    L to be codes from 0 to 2 L, either packed without a gap (flag 0), or as many to a byte as fit whole and then deflated
    (flag 1), whichever is smaller. Updates crowd about zero, so that a Huffman code takes fewer than `bits` bits a code.

    Guarantees:
        Unbiased: given the vector, what the coordinator reads has the vector as its mean, up to float32, coordinate by
        coordinate and independently, with variance at most scale^2 / 4. It moves no coordinate by a full scale or more.
    Source:
        Alistarh et al. (2017), QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding, section 3.
    """

    bits: int

    def __post_init__(self) -> None:
        """Refuse a width outside 2 to 8.

        Raises:
            PlanError: If it is.
        """
        if not 2 <= self.bits <= 8:
            raise PlanError.of("rounding in blocks", needs="2 to 8 bits", got=self.bits,
                               hint="Leave messages.quantize_bits out for float32")  # fmt: skip

    @property
    def name(self) -> str:
        """Such as "int8"."""
        return f"int{self.bits}"

    @property
    def _levels(self) -> int:
        return (1 << (self.bits - 1)) - 1

    def contract(self, spec: UpdateSpec) -> UpdateSpec:
        """Need real values that are private already or not claimed to be; drop the bounds, which rounding may exceed.

        The scale depends on the data, so one unit's effect on a rounded vector has no useful bound, and noise that comes
        later would be too small. Rounding what is private already is post-processing.

        Raises:
            IllegalChain: If a unit is protected and its noise is still to come, or the values are integers in a ring.
        """
        if spec.encoding is not Encoding.REAL:
            raise IllegalChain.of("rounding in blocks", needs="real values", got="integers in a ring",
                                  hint="Under a secure sum messages.quantize_bits sets its grid")  # fmt: skip
        if spec.unit is not Unit.NONE and not spec.noised:
            raise IllegalChain.of(
                "rounding in blocks", needs=f"an update whose noise for one {spec.unit} was drawn at the site",
                got="noise that comes later, or none",
                hint='Set privacy.noise = "site", or a secure sum, which rounds to a public grid',
            )  # fmt: skip
        return spec.with_(l2_bound=None, range_linf=None)

    def pack(self, vector: Vector, rng: SecretRng) -> bytes:
        """Round a vector of shape (dim,) and return it as bytes.

        Raises:
            ProtocolError: If a value is not finite, or so large that its rounding would not be.
        """
        if not np.isfinite(vector).all():
            raise _unfit("NaN or infinite values")
        levels, dim = self._levels, len(vector)
        padded = np.zeros((_count(dim), BLOCK))
        padded.ravel()[:dim] = vector
        largest = np.abs(padded).max(axis=1)
        scales = (largest / levels).astype("<f4")
        short = scales.astype(np.float64) * levels < largest  # rounded down, so that the largest would not fit
        scales[short] = np.nextafter(scales[short], np.float32(np.inf))
        if not self._usable(scales):
            raise _unfit(f"values up to {largest.max():g}")
        padded /= np.where(scales > 0, scales, 1)[:, None]
        padded.ravel()[:dim] += rng.uniform(dim)
        # L plus a uniform that is nearly 1 rounds to L + 1, once in 2^46 draws.
        levelled = np.minimum(np.floor(padded, out=padded), levels).ravel()[:dim] + levels
        codes, head = levelled.astype(np.uint8), scales.tobytes()
        body, tight = _deflate(Packing.whole(self.bits).pack(codes)), Packing.tight(self.bits)
        if len(body) < tight.size(dim):
            return b"".join((bytes([_DEFLATED]), head, body))
        return b"".join((bytes([_TIGHT]), head, tight.pack(codes)))

    def unpack(self, payload: Bytes, dim: int, *, who: str) -> Vector:
        """Return the rounded vector, shape (dim,), every value finite.

        Raises:
            ProtocolError: If the payload is not what `pack` could have written for this length.
        """
        view, start = memoryview(payload), 1 + 4 * _count(dim)
        if not start <= len(view) <= self.expected_size(dim):
            raise malformed(who, f"{start} to {self.expected_size(dim)} bytes", f"{len(view)} bytes")
        scales = np.frombuffer(view[1:start], "<f4")
        if not self._usable(scales):
            raise malformed(who, "scales from 0 to what float32 holds", "negative, infinite or NaN scales")
        codes = self._codes(view[0], view[start:], dim, who)
        if dim and int(codes.max()) > 2 * self._levels:
            raise malformed(who, f"codes up to {2 * self._levels}", f"{int(codes.max())}")
        out = codes.astype(np.float64) - self._levels
        for at, scale in enumerate(scales.astype(np.float64)):
            out[at * BLOCK : (at + 1) * BLOCK] *= scale
        return out.astype(np.float32)

    def expected_size(self, dim: int) -> int:
        """Return the bytes of a payload without gaps; a deflated one is smaller."""
        return 1 + 4 * _count(dim) + Packing.tight(self.bits).size(dim)

    def _usable(self, scales: NDArray[np.float32]) -> bool:
        """Whether no scale is negative and float32 holds all multiples of each."""
        if not np.isfinite(scales).all():  # before the cast, which warns about some NaN
            return False
        largest = scales.astype(np.float64) * self._levels
        return bool(((largest >= 0) & (largest <= np.finfo(np.float32).max)).all())

    def _codes(self, flag: int, body: memoryview, dim: int, who: str) -> Codes:
        """Return the codes, shape (dim,), each below 2^bits."""
        if flag not in (_TIGHT, _DEFLATED):
            raise malformed(who, "a flag of 0 or 1", f"{flag}")
        packing = Packing.tight(self.bits) if flag == _TIGHT else Packing.whole(self.bits)
        size = packing.size(dim)
        raw = body if flag == _TIGHT else _inflate(body, size, who)
        if len(raw) != size:
            raise malformed(who, f"{size} bytes of codes", f"{len(raw)} or more")
        codes = packing.unpack(raw, dim)
        if codes is None:
            raise malformed(who, "zeros where no code is", "other bits")
        return codes


def _unfit(got: str) -> ProtocolError:
    return ProtocolError.of("rounding in blocks", needs="finite values that float32 holds after rounding", got=got,
                            hint="Training diverged: lower the rates")  # fmt: skip


def _count(dim: int) -> int:
    return -(-dim // BLOCK)


def _deflate(raw: bytes) -> bytes:
    # Neighbours are nearly independent: looking for repeated strings takes longer and makes most updates larger.
    engine = zlib.compressobj(wbits=-zlib.MAX_WBITS, strategy=zlib.Z_HUFFMAN_ONLY)
    return engine.compress(raw) + engine.flush()


def _inflate(body: memoryview, size: int, who: str) -> bytes:
    """Undo `_deflate`; of a stream that holds more than `size` bytes only one more is ever made."""
    engine = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
    try:
        raw = engine.decompress(body, size + 1)
    except zlib.error as error:
        raise malformed(who, f"{size} deflated bytes", f"what cannot be inflated ({error})") from None
    if not engine.eof or engine.unused_data:
        raise malformed(who, f"{size} deflated bytes", "a stream that is longer, cut or followed by something else")
    return raw
