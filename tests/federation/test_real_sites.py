"""What real sites meet over months: files of every kind, first weights, data that change, and runs that come again."""

import csv
import hashlib
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from tests.data.test_idx import idx
from tests.federation.hospitals import POLICY, found
from tests.federation.local import consortium
from tests.transport.credentials.world import World

import consilia
from consilia.core.errors import ConsiliaError, PlanError, StoreError
from consilia.federation.proposal import Proposal
from consilia.plan.load import from_text

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
NAMES = ("north", "south")
HEAD = """
[run]
name = "clinics"
reproducible = {reproducible}
[sites]
only = ["north", "south"]
counts = {{ north = 200, south = 200 }}
population = "clinic"
[training]
algorithm = "fedsgd"
batch = "full"
rounds = 2
server_learning_rate = 0.1
[privacy]
unit = "record"
noise = "site"
epsilon = 0.5
delta = 1e-5
clip_norm = 1.0
[evaluation]
metrics = "{metrics}"
"""
CSV = """
[data]
source = "csv"
path = "all.csv"
label = "ill"
classes = ["no", "yes"]
id_column = "id"
split = "hash"
test_fraction = 0.25
site_column = "clinic"
[data.numeric]
age = [18, 100]
pressure = [80, 200]
"""
NPZ = '[data]\nsource = "npz"\npath = "images.npz"\nsplit = "official"\nclasses = ["a", "b"]\n'
IDX = """
[data]
source = "idx"
path = "images-idx3-ubyte"
labels_path = "labels-idx1-ubyte"
split = "hash"
test_fraction = 0
classes = ["a", "b"]
"""


def plan_of(data: str = CSV, *, reproducible: bool = False, extra: str = "") -> str:
    metrics = "hidden" if data is IDX else "public"  # its rows have no ids by which some could be held out
    return data + HEAD.format(reproducible=str(reproducible).lower(), metrics=metrics) + extra


def rows(seed: int, clinic: str, count: int = 80) -> list[list[object]]:
    chance = random.Random(seed)
    return [
        [f"{clinic}-{number}", chance.randint(20, 95), chance.randint(90, 190), chance.choice(["no", "yes"]), clinic]
        for number in range(count)
    ]


def write_csv(path: Path, *tables: list[list[object]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(
            [["id", "age", "pressure", "ill", "clinic"], *(row for table in tables for row in table)]
        )


def write_npz(folder: Path, seed: int) -> str:
    chance = np.random.default_rng(seed)
    images, labels = chance.integers(0, 256, (80, 6, 6), dtype=np.uint8), chance.integers(0, 2, 80, dtype=np.uint8)
    np.savez(folder / "own.npz", x_train=images[:60], y_train=labels[:60], x_test=images[60:], y_test=labels[60:])
    return "own.npz"


def write_idx(folder: Path, seed: int) -> str:
    chance = np.random.default_rng(seed)
    (folder / "scans-idx3-ubyte").write_bytes(idx(chance.integers(0, 256, (80, 6, 6), dtype=np.uint8)))
    (folder / "labels-idx1-ubyte").write_bytes(idx(chance.integers(0, 2, 80, dtype=np.uint8)))
    return "scans-idx3-ubyte"


def clinics(folder: Path, *, file: str = "rows.csv", policy: str = POLICY) -> World:
    world = found(folder, names=NAMES, policy=policy + "[sites]\nleast = 2\n")
    for number, name in enumerate(NAMES):
        place = folder / name
        (place / "site.toml").write_text(f'coordinator = "localhost:1"\n[data.clinic]\npath = "{file}"\n')
        write_csv(place / "rows.csv", rows(number, name))
    return world


@pytest.mark.parametrize(("data", "write"), [(NPZ, write_npz), (IDX, write_idx)], ids=["npz", "idx"])
def test_sites_train_on_their_own_images(tmp_path: Path, data: str, write: Callable[[Path, int], str]) -> None:
    file = "own.npz" if write is write_npz else "scans-idx3-ubyte"
    world = clinics(tmp_path, file=file)
    for number, name in enumerate(NAMES):
        assert write(tmp_path / name, number) == file
    with consortium(world, NAMES) as everyone:
        ended = everyone.ran("images-1", plan_of(data))
        assert (ended["status"], ended["round"], ended["reason"]) == ("done", 2, None)
        assert (ended["accuracy"] is None) == (data is IDX)
        for site in everyone.sites.values():
            assert next(iter(site._store.spent("clinic").values()))[0] <= 0.5


def test_csv_files_of_real_sites_give_the_model_of_one_file_in_a_simulation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_policy = POLICY.replace(
        "[privacy]", "[privacy]\nreproducible = true\nmax_epsilon_run = inf\nmax_epsilon_set = inf"
    )
    world = clinics(tmp_path / "world", policy=open_policy)
    with consortium(world, NAMES) as everyone:
        ended = everyone.ran("clinics-1", plan_of(reproducible=True))
        assert (ended["status"], ended["reason"]) == ("done", None)
    write_csv(tmp_path / "all.csv", *(rows(number, name) for number, name in enumerate(NAMES)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONSILIA_HOME", str(tmp_path / "simulated"))
    plan = from_text(plan_of(reproducible=True))
    simulated = consilia.run(plan, out=tmp_path / "run")
    real = safetensors.numpy.load_file(everyone.home / "runs" / "clinics-1" / "model.safetensors")["vector"]
    np.testing.assert_array_equal(real, simulated.model)


def test_a_run_that_is_submitted_again_is_the_same_run(tmp_path: Path) -> None:
    with consortium(clinics(tmp_path), NAMES) as everyone:
        everyone.submit("clinics-1", plan_of())
        everyone.submit("clinics-1", plan_of())  # the answer was lost, so it is sent again
        everyone.work()
        first = everyone.run("clinics-1")
        assert first["status"] == "done"
        charged = {name: site._store.spent("clinic") for name, site in everyone.sites.items()}
        everyone.submit("clinics-1", plan_of())  # after its end
        everyone.work()
        assert everyone.run("clinics-1") == first
        assert len(everyone.ask("status")["runs"]) == len(everyone.ended) == 1
        assert charged == {name: site._store.spent("clinic") for name, site in everyone.sites.items()}
        with pytest.raises(PlanError, match="run 'clinics-1' needs the plan it was submitted with; got another"):
            everyone.submit("clinics-1", plan_of().replace("rounds = 2", "rounds = 3"))
        assert everyone.run("clinics-1") == first


def test_a_run_that_nobody_knows_cannot_be_stopped(tmp_path: Path) -> None:
    with consortium(clinics(tmp_path), NAMES) as everyone:
        with pytest.raises(StoreError, match="run 'clinics-9' needs to be in the queue; got none of that id"):
            everyone.ask("stop", run="clinics-9")
        for odd in ("../x", "", 3, None, "a" * 200):
            with pytest.raises(PlanError, match="request key run needs the id of a run"):
                everyone.ask("stop", run=odd)
        assert everyone.ask("status")["runs"] == []


def test_rows_that_change_between_runs_show_in_the_ledger_and_the_budget_goes_on(tmp_path: Path) -> None:
    with consortium(clinics(tmp_path), NAMES) as everyone:
        store = everyone.sites["north"]._store
        assert everyone.ran("clinics-1", plan_of())["status"] == "done"
        [one] = store.spent("clinic").values()
        write_csv(tmp_path / "north" / "rows.csv", rows(0, "north"), rows(7, "new"))
        assert everyone.ran("clinics-2", plan_of())["status"] == "done"
        [change] = store.data_changes("clinic")
        assert change.run == "clinics-2"
        assert change.before != change.after
        [both] = store.spent("clinic").values()
        assert both[0] > one[0]
        assert everyone.sites["south"]._store.data_changes("clinic") == []
        store.verify("clinic")


def test_a_file_that_was_mended_counts_at_the_next_submission(tmp_path: Path) -> None:
    """Rows that were read for a run that came to nothing are not those of the run after it."""
    with consortium(clinics(tmp_path), NAMES) as everyone:
        file = tmp_path / "north" / "rows.csv"
        write_csv(file, rows(0, "north", 400))
        store = everyone.sites["north"]._store
        assert everyone.ran("clinics-1", plan_of())["status"] == "done"  # by the other site alone
        assert store.charged("clinics-1") == []  # more rows than are registered
        write_csv(file, rows(0, "north"))
        assert everyone.ran("clinics-2", plan_of())["status"] == "done"
        assert store.charged("clinics-2")


@pytest.mark.parametrize("text", ["", "[data]\n", "[data.clinic]\npath = 3\n"])
def test_a_file_that_is_none_is_told_by_its_kind_alone(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with consortium(clinics(tmp_path), NAMES) as everyone:
        (tmp_path / "north" / "rows.csv").write_text(text + "Anna Meyer,4711\n")
        ended = everyone.ran("clinics-1", plan_of())
    assert ended["reason"] is None or "Anna" not in ended["reason"]
    assert "Anna" not in caplog.text
    assert "4711" not in caplog.text
    assert "refused survey of run clinics-1: data file" in caplog.text  # the steward has the words


def first_weights(path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Train a simulated model and take its weights."""
    folder.mkdir()
    write_csv(folder / "all.csv", rows(50, "north"), rows(51, "south"))
    monkeypatch.chdir(folder)
    monkeypatch.setenv("CONSILIA_HOME", str(folder / "home"))
    run = consilia.run(from_text(plan_of(reproducible=True)), out=folder / "run")
    shutil.copy(run.folder / "model.safetensors", path)


def test_first_weights_come_from_the_coordinator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = clinics(tmp_path / "world")
    text = plan_of(extra='[model]\ninitial = "first.safetensors"\ninitial_source = "made up"\n')
    with consortium(world, NAMES) as everyone:
        missing = everyone.ran("clinics-1", text)
        assert missing["status"] == "failed"
        assert "plan key model.initial" in missing["reason"] or "first.safetensors" in missing["reason"]
        (everyone.home / "initial").mkdir()
        weights = everyone.home / "initial" / "first.safetensors"
        first_weights(weights, monkeypatch, tmp_path / "public")
        ended = everyone.ran("clinics-2", text)
        assert (ended["status"], ended["reason"]) == ("done", None)
        digest = hashlib.sha256(weights.read_bytes()).hexdigest()
        for name in NAMES:
            [kept] = (tmp_path / "world" / name / "home" / "runs").rglob("*.safetensors")
            assert hashlib.sha256(kept.read_bytes()).hexdigest() == digest
            assert kept.parent.name == "clinics-2"


def test_other_weights_than_those_of_the_plan_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = clinics(tmp_path / "world")
    text = plan_of(extra='[model]\ninitial = "first.safetensors"\ninitial_source = "made up"\n')
    with consortium(world, NAMES) as everyone:
        (everyone.home / "initial").mkdir()
        weights = everyone.home / "initial" / "first.safetensors"
        first_weights(weights, monkeypatch, tmp_path / "public")
        raw = bytearray(weights.read_bytes())
        raw[-1] ^= 1
        monkeypatch.setattr(Proposal, "_weights", lambda _self: bytes(raw))  # another file than the digest was made of
        ended = everyone.ran("clinics-1", text)
        assert ended["status"] == "failed"
        assert "north: the plan's digest here is" in ended["reason"]
        for name in NAMES:
            assert everyone.sites[name]._store.charged("clinics-1") == []
            assert list((tmp_path / "world" / name / "home").rglob("*.safetensors")) == []


@pytest.mark.parametrize("data", [NPZ, IDX], ids=["npz", "idx"])
def test_a_plan_for_real_sites_images_is_no_simulation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str
) -> None:
    for write in (write_npz, write_idx):
        write(tmp_path, 0)
    (tmp_path / "own.npz").rename(tmp_path / "images.npz")
    (tmp_path / "scans-idx3-ubyte").rename(tmp_path / "images-idx3-ubyte")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONSILIA_HOME", str(tmp_path / "home"))
    with pytest.raises(ConsiliaError, match="needs a table that names each row's site; got none"):
        consilia.run(from_text(plan_of(data)), out=tmp_path / "run")
    unnamed = plan_of(data).replace('only = ["north", "south"]', "").replace("{ north = 200, south = 200 }", '"public"')
    with pytest.raises(PlanError, match=r"needs a source that names sites; .* name each in sites.counts"):
        consilia.run(from_text(unnamed), out=tmp_path / "run")
