"""Filters of the two-dimensional wavelet scattering transform, as real transfer functions on a periodic grid."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

ORIENTATIONS: Final = 8
SCALES: Final = 2
_FOLDS: Final = 3  # copies of the grid a side that a filter's tail is followed over: what lies beyond is below 1e-12
_WIDTH: Final = 0.8  # sigma of the finest wavelet and of the unscaled blur, pixels
_FREQUENCY: Final = 3 * np.pi / 4  # centre of the finest wavelet, radians a pixel
_SLANT: Final = 4 / ORIENTATIONS  # the envelope is this much narrower along the wave than across: orientations overlap


@dataclass(frozen=True, eq=False)
class Filters:
    """Wavelets at scales 1 and 2 in 8 orientations, and the blur that all paths end with.

    The wavelets share one factor that makes the bank non-expansive: at every frequency w of a real image
    |blur(w)|^2 + 1/2 sum over wavelets of (|psi(w)|^2 + |psi(-w)|^2) <= 1 (Littlewood-Paley).

    Attributes:
        wavelets: Transfer functions, float32, shape (scales, orientations, height, width).
        blur: One row of the blur's circulant matrix along each axis, in pixels, float64: its outer product is the
            blur's impulse response. Shapes (height,) and (width,).

    Source:
        Bruna and Mallat (2013), Invariant scattering convolution networks, section 2; Mallat (2012), Group invariant
        scattering, proposition 2.1 (what the inequality is for).
    """

    wavelets: NDArray[np.float32]
    blur: tuple[NDArray[np.float64], NDArray[np.float64]]


def filters(height: int, width: int) -> Filters:
    """Return the filters for a periodic grid of height x width pixels."""
    blur = _gaussian(height), _gaussian(width)
    low = np.abs(np.outer(np.fft.fft(blur[0]), np.fft.fft(blur[1]))) ** 2
    bank = np.stack(
        [[_morlet(height, width, 2.0**j, np.pi * k / ORIENTATIONS) for k in range(ORIENTATIONS)] for j in range(SCALES)]
    )
    energy = np.sum(bank**2, axis=(0, 1))
    # psi(-w): the grid read backwards, with frequency 0 in its place.
    both = (energy + np.roll(energy[::-1, ::-1], 1, axis=(0, 1))) / 2
    # At frequency 0 the blur passes everything and the wavelets nothing: 0 / 0 up to rounding.
    room = (1 - low)[both > 1e-9] / both[both > 1e-9]
    return Filters((bank * np.sqrt(room.min())).astype(np.float32), blur)


def _gaussian(size: int) -> NDArray[np.float64]:
    """The blur of scale 2^J along one axis, summing to 1, periodic."""
    sigma = _WIDTH * 2 ** (SCALES - 1)
    at = np.arange(-_FOLDS * size, (_FOLDS + 1) * size)
    bump = np.exp(-(at**2) / (2 * sigma**2)).reshape(-1, size).sum(axis=0)
    return np.asarray(bump / bump.sum())


def _morlet(height: int, width: int, scale: float, angle: float) -> NDArray[np.float64]:
    """One wavelet's transfer function; real, because the wavelet at -u is its own conjugate at u.

    In pixels u, rotated to (a, b) = R(-angle) u:  envelope(u) (exp(i xi a) - beta), with the Gaussian envelope
    slant / (2 pi sigma^2) exp(-(a^2 + slant^2 b^2) / (2 sigma^2)) and beta so that the wavelet sums to 0.
    """
    sigma, xi = _WIDTH * scale, _FREQUENCY / scale
    rows = np.arange(-_FOLDS * height, (_FOLDS + 1) * height)[:, None]
    columns = np.arange(-_FOLDS * width, (_FOLDS + 1) * width)[None, :]
    along = columns * np.cos(angle) + rows * np.sin(angle)
    across = -columns * np.sin(angle) + rows * np.cos(angle)
    # Summing to 1 over the plane, so that every wavelet passes about 1 at its own frequency.
    envelope = np.exp(-(along**2 + (_SLANT * across) ** 2) / (2 * sigma**2)) * (_SLANT / (2 * np.pi * sigma**2))
    wave = envelope * np.exp(1j * xi * along)
    wavelet = wave - envelope * (wave.sum() / envelope.sum())
    folded = wavelet.reshape(2 * _FOLDS + 1, height, 2 * _FOLDS + 1, width).sum(axis=(0, 2))
    return np.real(np.fft.fft2(folded))
