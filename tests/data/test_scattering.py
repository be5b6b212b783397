import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from consilia.data.features import scattering
from consilia.data.features.morlet import filters
from consilia.data.features.scattering import PATHS, output_shape, scatter

Images = NDArray[np.float32]


def smooth(seed: int, n: int, channels: int, height: int, width: int) -> Images:
    """Random blobs: images with edges and slopes, not white noise."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(n, channels, height, width))
    spectrum = np.fft.fft2(noise)
    rows, columns = np.fft.fftfreq(height)[:, None], np.fft.fftfreq(width)[None, :]
    return np.tanh(2 * np.real(np.fft.ifft2(spectrum / (0.05 + np.hypot(rows, columns)))) / 8).astype(np.float32)


def slowly(image: NDArray[np.float64]) -> NDArray[np.float64]:
    """The 81 paths of one image from the definition, in float64: whole planes, a transform a wavelet, sums pixel by pixel."""
    after = [-size % 4 + 4 for size in image.shape]
    padded = np.pad(image, [(4, after[0]), (4, after[1])], mode="reflect")
    bank = filters(*padded.shape)
    kernel = np.outer(*bank.blur)

    def modulus(plane: NDArray[np.float64], transfer: NDArray[np.float32]) -> NDArray[np.float64]:
        return np.abs(np.fft.ifft2(np.fft.fft2(plane) * transfer.astype(np.float64)))

    def kept(plane: NDArray[np.float64], step: int) -> NDArray[np.float64]:
        there = np.zeros(plane.shape)
        there[::step, ::step] = 1
        averages = np.empty([size // 4 for size in image.shape])
        for i, j in np.ndindex(averages.shape):
            weights = np.roll(kernel, (4 + 4 * i, 4 + 4 * j), axis=(0, 1)) * there  # the blur is even
            averages[i, j] = np.sum(weights * plane) / np.sum(weights)
        return averages

    fine = [modulus(padded, psi) for psi in bank.wavelets[0]]
    coarse = [modulus(padded, psi) for psi in bank.wavelets[1]]
    second = [modulus(plane, psi) for plane in fine for psi in bank.wavelets[1]]
    return np.stack([kept(plane, 1) for plane in (padded, *fine)] + [kept(plane, 2) for plane in (*coarse, *second)])


@pytest.mark.parametrize(("height", "width"), [(28, 28), (8, 8), (9, 14), (32, 19)])
def test_equals_the_definition(height: int, width: int) -> None:
    images = smooth(1, 2, 1, height, width)
    found = scatter(images)
    assert found.dtype == np.float32
    assert found.shape == (2, PATHS, height // 4, width // 4) == (2, *output_shape(1, height, width))
    for image, features in zip(images, found, strict=True):
        assert np.allclose(features, slowly(image[0].astype(np.float64)), atol=1e-6)


@pytest.mark.parametrize("size", [16, 36, 40, 44])
def test_the_bank_is_a_littlewood_paley_partition_up_to_the_corners(size: int) -> None:
    bank = filters(size, size + 4)
    low = np.abs(np.fft.fft2(np.outer(*bank.blur))) ** 2
    psi = bank.wavelets.astype(np.float64)
    assert np.abs(psi[..., 0, 0]).max() < 1e-6  # a wavelet does not see a constant
    both = sum((wave**2 + np.roll(wave[::-1, ::-1], 1, axis=(0, 1)) ** 2) / 2 for wave in psi.reshape(-1, *low.shape))
    total = low + both
    assert total.max() < 1 + 1e-6
    assert total[both > 0.5].max() > 1 - 1e-6  # reached by the wavelets, not by the blur of constants alone
    rows, columns = np.fft.fftfreq(size)[:, None], np.fft.fftfreq(size + 4)[None, :]
    assert total[np.hypot(rows, columns) < 0.45].min() > 0.4  # nothing below the corner frequencies is lost


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1), height=st.integers(8, 33), width=st.integers(8, 33), channels=st.integers(1, 3),
    scale=st.floats(1e-3, 1e3), kind=st.sampled_from(["smooth", "noise", "one pixel"]),
)  # fmt: skip
def test_features_are_no_further_apart_than_images(
    seed: int, height: int, width: int, channels: int, scale: float, kind: str
) -> None:
    rng = np.random.default_rng(seed)
    x = smooth(seed, 2, channels, height, width)
    if kind == "noise":
        x += rng.normal(size=x.shape).astype(np.float32)
    elif kind == "one pixel":
        x[1] = x[0]
        x[1, 0, rng.integers(height), rng.integers(width)] += 1
    x *= np.float32(scale)
    s = scatter(x)
    assert np.linalg.norm(s[0] - s[1]) <= np.linalg.norm(x[0] - x[1]) * (1 + 1e-5)
    assert np.linalg.norm(s[0]) <= np.linalg.norm(x[0]) * (1 + 1e-5)


def test_full_resolution_keeps_no_more_energy_than_the_image() -> None:
    """With every pixel kept instead of every 16th the bound is nearly reached: a bank twice as strong would pass it."""
    image = smooth(5, 1, 1, 36, 36)[0, 0].astype(np.float64)
    bank = filters(36, 36)
    psi, blur = bank.wavelets.astype(np.float64), np.fft.fft2(np.outer(*bank.blur))

    def convolve(
        plane: NDArray[np.float64], transfer: NDArray[np.complex128] | NDArray[np.float64]
    ) -> NDArray[np.complex128]:
        return np.fft.ifft2(np.fft.fft2(plane) * transfer)

    fine = [np.abs(convolve(image, wave)) for wave in psi[0]]
    second = [np.abs(convolve(plane, wave)) for plane in fine for wave in psi[1]]
    coarse = [np.abs(convolve(image, wave)) for wave in psi[1]]
    kept = sum(np.linalg.norm(convolve(plane, blur)) ** 2 for plane in (image, *fine, *coarse, *second))
    assert 0.5 < kept / np.linalg.norm(image) ** 2 <= 1


def test_a_small_shift_moves_features_much_less_than_pixels() -> None:
    blank = np.zeros((8, 1, 40, 40), np.float32)
    blank[:, :, 8:32, 8:32] = smooth(3, 8, 1, 24, 24) * np.hanning(24)[:, None] * np.hanning(24)
    moved = np.roll(blank, (0, 1), axis=(2, 3))

    def change(before: Images, after: Images) -> float:
        return float(np.linalg.norm(after - before) / np.linalg.norm(before))

    s, s_moved = scatter(blank), scatter(moved)
    assert change(s, s_moved) < 0.5 * change(blank, moved)
    # A shift by a whole stride moves the grid: the inner features shift along, exactly.
    strided = scatter(np.roll(blank, (0, 4), axis=(2, 3)))
    assert np.allclose(strided[..., 3:8], s[..., 2:7], atol=1e-5)


def test_an_orientation_answers_to_its_own_edges() -> None:
    at = np.arange(32)
    for k, angle in enumerate(np.pi * np.arange(8) / 8):
        wave = np.cos(3 * np.pi / 4 * (at[None, :] * np.cos(angle) + at[:, None] * np.sin(angle)))
        fine = scatter(wave[None, None].astype(np.float32))[0, 1:9, 2:-2, 2:-2].mean(axis=(1, 2))
        assert int(fine.argmax()) == k


def test_a_row_does_not_depend_on_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    images = smooth(2, 7, 2, 12, 10)
    whole = scatter(images)
    assert np.array_equal(scatter(images), whole)
    monkeypatch.setattr(scattering, "_PIXELS", 1)  # one plane at a time
    assert np.array_equal(np.concatenate([scatter(image[None]) for image in images]), whole)
    assert np.array_equal(scatter(images), whole)


def test_each_channel_has_its_own_paths() -> None:
    images = smooth(4, 2, 3, 16, 16)
    alone = [scatter(images[:, [channel]]) for channel in range(3)]
    assert np.array_equal(scatter(images), np.concatenate(alone, axis=1))
    assert scatter(images).shape == (2, 243, 4, 4)


def test_no_images_give_no_features() -> None:
    assert scatter(np.zeros((0, 1, 28, 28), np.float32)).shape == (0, 81, 7, 7)


def test_a_constant_is_its_own_average_and_no_wave() -> None:
    s = scatter(np.full((1, 1, 11, 13), 0.75, np.float32))
    assert np.allclose(s[0, 0], 0.75, atol=1e-6)
    assert np.abs(s[0, 1:]).max() < 1e-5
