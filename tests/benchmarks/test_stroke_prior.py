"""Glyphs are drawn as promised, and the weights beside the plans are what their command and their plan say."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import safetensors
import torch
from benchmarks.study import read

import consilia
from benchmarks import mnist_prior, stroke_prior, strokes
from consilia.learning.flat import FlatModel
from consilia.learning.initial import load_initial
from consilia.learning.models import build


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)  # the command sets it for its own process


def test_one_seed_draws_the_same_images_and_another_does_not() -> None:
    def drawn(seed: int) -> torch.Tensor:
        rng = np.random.default_rng(seed)
        return strokes.draw(strokes.invent(4, rng), np.arange(20) % 4, rng)

    first = drawn(1)
    assert first.shape == (20, 1, 28, 28)
    assert first.dtype == torch.float32
    assert torch.equal(first, drawn(1))
    assert not torch.equal(first, drawn(2))
    assert -1 <= float(first.min()) < -0.99
    assert 0.9 < float(first.max()) <= 1


def test_a_glyph_fills_its_box_and_no_more() -> None:
    rng = np.random.default_rng(3)
    ink = strokes.draw(strokes.invent(50, rng), np.arange(200) % 50, rng)[:, 0] > 0
    for across in (1, 2):
        sides = ink.any(across).sum(1)
        assert int(sides.max()) <= 20 + 4  # a pen of at most 1.7 pixels a side
    longer = torch.maximum(ink.any(1).sum(1), ink.any(2).sum(1))
    assert float(longer.float().mean()) > 16


def test_images_of_a_class_are_alike_but_never_the_same() -> None:
    rng = np.random.default_rng(4)
    labels = np.repeat(np.arange(10), 20)
    images = strokes.draw(strokes.invent(10, rng), labels, rng).flatten(1)
    apart = torch.cdist(images, images)
    same = torch.from_numpy(labels[:, None] == labels)
    assert float(apart[same & ~torch.eye(200, dtype=torch.bool)].min()) > 0.1
    assert float(apart[same].mean()) < 0.9 * float(apart[~same].mean())


def test_the_command_trains_and_writes_what_a_plan_can_start_from(tmp_path: Path) -> None:
    places = [tmp_path / "one.safetensors", tmp_path / "two.safetensors"]
    for place in places:
        assert stroke_prior.main(["--small", "--out", str(place)]) > 0.5  # of five classes
    assert places[0].read_bytes() == places[1].read_bytes()
    model = FlatModel(
        build("mnist-cnn", input_shape=(1, 28, 28), classes=10, hidden=(), activation="tanh", seed=0), "none"
    )
    assert load_initial(places[0], model).left_out == ()


def test_small_weights_never_replace_the_full_ones() -> None:
    before = stroke_prior.PLACE.stat().st_mtime_ns
    with pytest.raises(SystemExit):
        stroke_prior.main(["--small"])
    assert stroke_prior.PLACE.stat().st_mtime_ns == before


def test_the_plan_says_of_its_weights_what_their_maker_wrote_in_them() -> None:
    with safetensors.safe_open(stroke_prior.PLACE, framework="numpy") as file:
        made, trained_on, _ = file.metadata()["origin"].split("; ")
        head = [file.get_tensor(name) for name in ("9.weight", "9.bias")]
    assert made == stroke_prior.COMMAND
    assert importlib.util.find_spec(made.rpartition(" ")[2]) is not None
    assert [part.shape for part in head] == [(10, 32), (10,)]
    assert not any(part.any() for part in head), "the head of the glyphs is thrown away"
    plan = consilia.load(mnist_prior.PLAN)
    assert plan.model.initial_source == trained_on == stroke_prior.SOURCE
    assert plan.model.initial is not None
    assert (mnist_prior.PLAN.parent / plan.model.initial).resolve() == stroke_prior.PLACE


def test_the_kept_result_is_of_these_weights() -> None:
    result = read(mnist_prior.STUDY.name)
    assert result is not None
    assert result["prior"] == mnist_prior.prior(), "run: python -m benchmarks.mnist_prior"
