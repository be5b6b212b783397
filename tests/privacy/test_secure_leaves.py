"""Pattern I under secure sums: no byte that leaves a site, nor any record of the run, shows what is one site's own."""

import json
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from tests.privacy.lab import SITES, Lab, Sent, plan_of, privacy
from tests.privacy.test_what_leaves import form, hexadecimal, parsed, spoiled
from tests.rounds.secure_bench import attested

import consilia
from consilia.core.randomness import SecretRng
from consilia.crypto.paillier_key import PaillierKey
from consilia.plan.schema import Plan
from consilia.report.page import write_report
from consilia.rounds.learner import TorchLearner
from consilia.rounds.ports import Score, Trained

LabMaker = Callable[..., Lab]
SECURE = {
    "none": "", "masks": 'mode = "masks"', "rlwe": 'mode = "rlwe"', "paillier": 'mode = "paillier"\nkey_bits = 2048',
    "attested": 'mode = "attested"\npolicy = "policy.toml"',
}  # fmt: skip
HIDING = [mode for mode in SECURE if mode != "none"]


def plan_for(mode: str, *, rounds: int = 2, protect: str = 'unit = "none"', reproducible: bool = False) -> Plan:
    return plan_of(
        rounds=rounds, protect=protect, evaluation='metrics = "public"', secure=SECURE[mode], reproducible=reproducible
    )


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, str]]:
    folder = tmp_path_factory.mktemp("tpm")
    with attested(folder) as attester:
        yield attester, (folder / "policy.toml").read_text()


@pytest.fixture
def hiding(request: pytest.FixtureRequest, place: Path, lab: LabMaker) -> LabMaker:
    """A maker of labs, with hardware and policy for those that are attested."""

    def make(plan: Plan, folder: str = "a") -> Lab:
        if plan.secure_sum.mode != "attested":
            return lab(plan, folder)
        attester, policy = request.getfixturevalue("machine")
        (place / folder).mkdir(exist_ok=True)
        (place / folder / "policy.toml").write_text(policy)
        return lab(plan, folder, attester=attester)

    return make


@dataclass
class Own:
    """What single sites computed and drew, while a run was watched."""

    vectors: list[Any] = field(default_factory=list)
    numbers: set[float] = field(default_factory=set)
    secrets: set[bytes] = field(default_factory=set)

    def needles(self) -> Iterator[bytes]:
        """Yield byte strings that would show some of it: each a few coordinates long, so that none is there by chance."""
        for vector in self.vectors:
            for kind, width in (
                (("<f4", 2), (">f4", 2), ("<f8", 1)) if vector.dtype.kind == "f" else (("<i8", 3), ("<i4", 3))
            ):
                cells = np.ascontiguousarray(vector, kind)
                for start in range(0, cells.size - width + 1, width):
                    if np.count_nonzero(cells[start : start + width]) == width:
                        yield cells[start : start + width].tobytes()
        for number in self.numbers:
            text = json.dumps(number).encode()  # a short one may stand for something else
            yield from (struct.pack("<d", number), struct.pack(">d", number), *([text] if len(text) > 9 else []))

    def found(self, data: bytes) -> int:
        return sum(needle in data for needle in self.needles())


@contextmanager
def watched() -> Iterator[Own]:
    """Note every update, loss and score of a site, each with its weight and without, and every secret that is drawn."""
    own = Own()
    train, evaluate, token, begin = TorchLearner.train, TorchLearner.evaluate, SecretRng.token, SecretRng.__init__

    def training(self: TorchLearner, *arguments: Any) -> Trained:
        done = train(self, *arguments)
        own.vectors += [done.vector, np.float32(30 / 199) * done.vector, done.vector.astype(np.float64) * 85 / 199]
        if done.loss is not None:
            own.numbers.add(float(done.loss))
        return done

    def scoring(self: TorchLearner, *arguments: Any) -> Score:
        score = evaluate(self, *arguments)
        own.numbers |= {score.loss_sum, score.loss_sum / score.rows, score.correct / score.rows}
        return score

    def drawing(self: SecretRng, size: int) -> bytes:
        drawn = token(self, size)
        own.secrets.add(drawn)
        return drawn

    def beginning(self: SecretRng, key: bytes, **more: Any) -> None:
        own.secrets.add(bytes(key))
        begin(self, key, **more)

    with (
        patch.object(TorchLearner, "train", training), patch.object(TorchLearner, "evaluate", scoring),
        patch.object(SecretRng, "token", drawing), patch.object(SecretRng, "__init__", beginning),
    ):  # fmt: skip
        yield own


def handed_over(one: Lab, own: Own) -> None:
    """Note the integers that pipelines hand over to be summed, and as the elements that are added."""
    secure = one.prepared.run_plan.secure
    for site in one.simulation.sites.values():
        half: Any = site._sums
        if half is None:
            continue
        update = half.update

        def spied(task: Any, vector: Any, *rest: Any, update: Any = update) -> bytes:
            own.vectors.append(vector)
            if secure is not None and secure.ring is not None:
                size = secure.ring.bits // 8
                packed = secure.ring.pack(secure.ring.lift(vector))
                own.secrets |= {bytes(packed[at : at + 4 * size]) for at in range(0, len(packed) - 3 * size, 4 * size)}
            return bytes(update(task, vector, *rest))

        half.update = spied


def keys_held(one: Lab) -> set[bytes]:
    """Return pieces of the keys that sites hold in memory for sums."""
    found: set[bytes] = set()
    for site in one.simulation.sites.values():
        half: Any = site._sums
        held = getattr(getattr(half, "_scheme", None), "_key", None)
        if isinstance(held, PaillierKey):
            found |= {prime.to_bytes(128, "big")[:32] for prime in (held.p, held.q)} | {held.group}
        elif held is not None:
            _, share = held
            values = np.ascontiguousarray(share.values).reshape(-1)
            found |= {values[:16].tobytes(), values.astype(">u4")[:16].tobytes(), share.group}
    return found


def watched_run(mode: str, make: LabMaker, **more: Any) -> tuple[Lab, Own, bytes]:
    with watched() as own:
        one = make(plan_for(mode, **more))
        handed_over(one, own)
        one.train()
    own.secrets |= (keys := keys_held(one))
    assert bool(keys) == (mode in ("rlwe", "paillier"))
    sent = one.wire.up + one.wire.down
    once = {part for one_sent in sent for part in (json.dumps(parsed(one_sent)[1]).encode(), parsed(one_sent)[2])}
    return one, own, b"\n".join(once)  # most of what the coordinator says is said to all


def test_in_the_clear_all_of_it_is_found(hiding: LabMaker) -> None:
    """The search finds what it is for."""
    one, own, frames = watched_run("none", hiding)
    assert own.found(frames) > 2 * len(SITES) * 10
    assert all(json.dumps(number).encode() in frames for number in list(own.numbers)[:1])
    assert json.loads(json.dumps(one.journal.records()))[0]["per_site"]["Hungary"] != "hidden"


FIELDS = {
    "masks": {"stage", "session"}, "rlwe": {"stage", "session"}, "paillier": {"stage", "session"}, "attested": {"stage"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("mode", "protect"),
    [(mode, 'unit = "none"') for mode in HIDING]
    + [(mode, privacy("record", "site", z=4.0)) for mode in ("masks", "attested")],
    ids=[*HIDING, "masks, record", "attested, record"],
)
def test_under_a_secure_sum_nothing_of_a_site_is_in_any_frame(mode: str, protect: str, hiding: LabMaker) -> None:
    one, own, frames = watched_run(mode, hiding, protect=protect)
    every_field_is_on_the_list(one, mode, {"charges", "ledger_head"} if "record" in protect else set())
    assert [record["status"] for record in one.journal.records()] == ["counted"] * 2
    assert len(own.vectors) >= 2 * len(SITES) * 4
    assert own.found(frames) == 0
    bodies = [parsed(sent)[1].get("body", {}) for sent in one.wire.down]
    public = {bytes.fromhex(body["session"]) for body in bodies if len(str(body.get("session"))) == 32}
    public |= {parsed(sent)[2] for sent in one.wire.up if parsed(sent)[1].get("body", {}).get("stage") == "challenge"}
    drawn = {secret for secret in own.secrets if len(secret) >= 8} - public
    assert len(drawn) > 20
    assert not [secret.hex() for secret in drawn if secret in frames]
    headers = json.dumps([parsed(sent)[1] for sent in one.wire.up + one.wire.down])
    assert not [secret.hex() for secret in drawn if secret.hex() in headers]


def every_field_is_on_the_list(one: Lab, mode: str, charged: set[str]) -> None:
    seen, sizes = set(), set()
    for sent in one.wire.up:
        kind, header, payload = parsed(sent)
        seen.add(sent.task)
        if sent.task == "close":
            assert (header["kind"], payload) == ("closed", b"")
        elif sent.task == "sum" and kind == 1:  # its part in opening a sum: computed from what was summed
            assert set(header) == {"site", "round", "plan", "model", "metrics"}
            assert set(header["metrics"]) == {"stage", "session"}
            assert header["metrics"]["stage"] == "open"
        elif sent.task == "sum":
            assert (kind, header["kind"]) == (2, "sum")
            assert set(header) == {"kind", "site", "round", "body"}
            assert set(header["body"]) == FIELDS[mode]
        else:
            assert (kind, set(header)) == (1, {"site", "round", "plan", "model", "metrics"})
            assert hexadecimal(header["model"])
            assert set(header["metrics"]) == {"session"} | (charged if sent.task == "train" else set())
            sizes.add((sent.task, len(payload)))
    assert seen == {"sum", "train", "evaluate", "close"}
    assert len(sizes) == 2


def shape(sent: Sent) -> tuple[str, str, int, int, str]:
    header = parsed(sent)[1]
    # Who opens a Paillier sum is drawn from a hash of the roster, which has other keys in each folder.
    site = "" if header.get("metrics", {}).get("stage") == "open" else sent.site
    return site, sent.task, sent.round, len(parsed(sent)[2]), json.dumps(form({**header, "site": ""}))


@pytest.mark.parametrize("mode", HIDING)
def test_length_and_form_of_frames_do_not_depend_on_rows(mode: str, hiding: LabMaker) -> None:
    shapes = {}
    for kind in ("as they are", "zeros"):
        one = hiding(plan_for(mode, rounds=1), kind.replace(" ", "-"))
        one.hold("Hungary", spoiled(one.prepared.rows["Hungary"].train, kind))
        one.train()
        shapes[kind] = sorted(shape(sent) for sent in one.wire.up)
    assert all(shape == shapes["as they are"] for shape in shapes.values())


def test_records_result_and_report_say_hidden(place: Path) -> None:
    out = place / "run"
    with watched() as own:
        result = consilia.run(plan_for("masks", reproducible=True), out=out)
    write_report(out)
    files = {path.name: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert {"journal.sqlite", "result.json", "report.html"} <= set(files)
    # Nothing of one site's is in the run's folder: neither its losses and scores nor its updates or their norms.
    norms = [float(np.linalg.norm(vector.astype(np.float64))) for vector in own.vectors]
    for name, data in files.items():
        assert own.found(data) == 0, name
        assert not [norm for norm in norms if json.dumps(norm).encode() in data or struct.pack("<d", norm) in data], (
            name
        )
    for record in result.records:
        assert record["update_norms"] == record["cosine"] == "hidden"
        assert set(record["per_site"].values()) <= {"hidden"}
        assert record["accuracy_mean_over_sites"] is record["worst_site"] is record["worst_accuracy"] is None
    assert result.summary["accuracy"] is not None
    assert result.summary["per_site"] == dict.fromkeys(SITES, "hidden")
