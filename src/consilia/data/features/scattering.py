"""Wavelet scattering of images: fixed features, stable under small shifts, for a linear model to read.

Two layers of wavelets and moduli, each path averaged over about 4 pixels and kept at every 4th. The filters are public
constants and an image's features depend on that image alone.
"""

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from consilia.data.features.morlet import ORIENTATIONS, SCALES, filters

STRIDE: Final = 2**SCALES  # pixels between two kept averages
PATHS: Final = 1 + SCALES * ORIENTATIONS + ORIENTATIONS**2  # order 0; order 1; order 2, coarser after finer wavelet
SMALLEST: Final = 8  # pixels a side: the reflected border and the blur need that much image
_PIXELS: Final = 150_000  # of the 9 planes an image becomes, worked on at once: a few MB, which stay in a cache

Images = NDArray[np.float32]


def output_shape(channels: int, height: int, width: int) -> tuple[int, int, int]:
    """Return the features' shape for images of this shape: (81 x channels, height // 4, width // 4)."""
    return PATHS * channels, height // STRIDE, width // STRIDE


def scatter(images: Images) -> Images:
    """Return the scattering features of each image.

    With modulus, psi the wavelets at scale 1 and 2 and phi the blur, channel by channel:
    x * phi;  | x * psi_1,k | * phi;  | x * psi_2,k | * phi;  | | x * psi_1,k | * psi_2,l | * phi.

    Args:
        images: Shape (n, channels, height, width), each side at least 8 pixels.

    Returns:
        float32, shape (n, 81 channels, height // 4, width // 4): for each channel of the image its 81 paths in the
        order above, orientation l running fastest.

    Guarantees:
        Row i of the result is a function of row i of `images` alone, whatever the other rows: a statement about one
        record's images is one about its features. Images that are equal up to 4 pixels from their borders differ in
        their features by at most their own l2 distance.

    Source:
        Bruna and Mallat (2013), Invariant scattering convolution networks, section 2.
    """
    n, channels, height, width = images.shape
    found = np.empty((n, channels, *output_shape(1, height, width)), dtype=np.float32)
    planes, out = images.reshape(n * channels, height, width), found.reshape(n * channels, PATHS, *found.shape[3:])
    batch = max(1, _PIXELS // (9 * (height + 2 * STRIDE) * (width + 2 * STRIDE)))
    for start in range(0, n * channels, batch):
        _scatter(planes[start : start + batch], out[start : start + batch])
    return found.reshape(n, *output_shape(channels, height, width))


def _scatter(planes: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    """Write the 81 paths of planes, shape (b, height, width), to `out`, shape (b, 81, height // 4, width // 4)."""
    b, height, width = planes.shape
    borders = [_border(size) for size in (height, width)]
    padded = np.pad(planes, [(0, 0), *borders], mode="reflect")
    fine, coarse = _bank(*padded.shape[1:])
    full, half = (_kept(padded.shape[1:], (height, width), step) for step in (1, 2))
    # The image itself and its 8 fine moduli: both go on to the coarse wavelets.
    maps = np.empty((b, 1 + ORIENTATIONS, *padded.shape[1:]), dtype=np.float32)
    maps[:, 0] = padded
    np.abs(np.fft.ifft2(np.fft.fft2(padded)[:, None] * fine), out=maps[:, 1:])
    out[:, : 1 + ORIENTATIONS] = _average(maps, *full)
    spectrum = np.fft.fft2(maps)
    for k, wavelet in enumerate(coarse):
        found = _average(np.abs(np.fft.ifft2(_halve(spectrum * wavelet))), *half)
        out[:, 1 + ORIENTATIONS + k] = found[:, 0]
        out[:, 1 + SCALES * ORIENTATIONS + k :: ORIENTATIONS] = found[:, 1:]


def _border(size: int) -> tuple[int, int]:
    """Reflected pixels before and after a side: at least 4, up to a whole number of strides in all."""
    return STRIDE, STRIDE + -size % STRIDE


def _halve(spectrum: NDArray[np.complex64]) -> NDArray[np.complex64]:
    """Keep every second pixel of each axis, in frequency: the mean of the frequencies that fall together."""
    rows, columns = (size // 2 for size in spectrum.shape[-2:])
    tall = spectrum[..., :rows, :] + spectrum[..., rows:, :]
    folded: NDArray[np.complex64] = tall[..., :columns] + tall[..., columns:]
    folded *= np.float32(0.25)
    return folded


def _average(maps: NDArray[np.float32], rows: NDArray[np.float32], columns: NDArray[np.float32]) -> NDArray[np.float32]:
    """Blur and keep every 4th pixel of the unpadded image: a product from each side, as the blur is separable."""
    return rows @ (maps @ columns.T)


@lru_cache(maxsize=8)
def _bank(height: int, width: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    fine, coarse = filters(height, width).wavelets
    return fine, coarse


@lru_cache(maxsize=16)
def _kept(padded: tuple[int, int], size: tuple[int, int], step: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The blur as matrices, shape (size // 4, padded // step), for maps of which every step-th pixel is there."""
    matrices = []
    for blur, side in zip(filters(*padded).blur, size, strict=True):
        at = STRIDE + STRIDE * np.arange(side // STRIDE)
        kept = blur[(at[:, None] - np.arange(0, len(blur), step)) % len(blur)]
        # Fewer pixels carry more weight each: the blur of a constant is that constant.
        matrices.append((kept / kept.sum(axis=1, keepdims=True)).astype(np.float32))
    return matrices[0], matrices[1]
