"""Pattern I: every byte that leaves a site, named; and none of it depends on rows but through a mechanism that was charged."""

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.privacy.lab import FEDSGD, SITES, TRAINING_ROWS, Lab, Sent, counts, plan_of, privacy

from consilia.core.errors import DataError, PlanError
from consilia.data.table import Table
from consilia.dp.chain import Entry, genesis
from consilia.dp.event import Event
from consilia.plan.schema import Plan
from consilia.rounds.rows import SiteRows
from consilia.store.ledger_store import SiteStore

LabMaker = Callable[..., Lab]
HELD_OUT = {"Cleveland": 104, "Hungary": 89, "Switzerland": 16, "VA Long Beach": 45}
LOCAL = 'batch = "poisson"\nsampling_rate = 0.3\nlocal_steps = 3'
PROTECTED = {
    "record, at the site": privacy("record", "site", z=4.0),
    "record, at the server": privacy("record", "server", z=4.0),
    "site, at the site": privacy("site", "site", z=4.0),
    "site, at the server": privacy("site", "server", z=4.0),
}
EVALUATION = {
    "hidden": 'metrics = "hidden"',
    "public": 'metrics = "public"',
    "charged": 'metrics = "charged"\nnoise_multiplier = 6.0',
}


def training_for(protect: str) -> str:
    return FEDSGD if protect == "record, at the server" else LOCAL


def parsed(sent: Sent) -> tuple[int, dict[str, Any], bytes]:
    """Take a frame apart by the format's description, not with the product's own reader."""
    magic, version, kind, size = struct.unpack_from(">4sBBI", sent.frame)
    assert (magic, version) == (b"CNSL", 1)
    header = sent.frame[10 : 10 + size]
    assert len(header.rstrip(b" ")) > len(header) - 16  # nothing but alignment after the document
    return kind, json.loads(header), sent.frame[10 + size :]


def hexadecimal(value: object) -> bool:
    return isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef")


# A plan with a whole site as unit refuses charged scores (tests/plan): they are noised for one row.
LEAVES = [(p, mode) for p in PROTECTED for mode in EVALUATION if not (p.startswith("site") and mode == "charged")]


@pytest.mark.parametrize(("protect", "mode"), LEAVES)
def test_every_field_that_leaves_a_site_is_on_the_list(protect: str, mode: str, lab: LabMaker) -> None:
    plan = plan_of(rounds=2, training=training_for(protect), protect=PROTECTED[protect],
                   evaluation=EVALUATION[mode], reproducible=False)  # fmt: skip
    one = lab(plan)
    one.train()
    digest, dim = one.prepared.run_plan.digest, one.prepared.run_plan.spec.dim
    seen = set()
    for sent in one.wire.up:
        kind, header, payload = parsed(sent)
        seen.add(sent.task)
        assert header["site"] == sent.site
        assert header["round"] == sent.round
        if sent.task == "close":
            assert kind == 2
            assert set(header) == {"kind", "site", "round", "body"}
            assert header["kind"] == "closed"
            assert set(header["body"]) == {"ledger_head"}
            assert hexadecimal(header["body"]["ledger_head"])
            assert payload == b""
            continue
        assert kind == 1, header
        assert set(header) == {"site", "round", "plan", "model", "metrics"}
        assert header["plan"] == digest
        assert hexadecimal(header["model"])
        metrics = header["metrics"]
        if sent.task == "train":
            # No loss, no count, no norm: how often the schedule asked, and a hash.
            assert set(metrics) == {"charges", "ledger_head"}
            assert metrics["charges"] == sent.round
            assert hexadecimal(metrics["ledger_head"])
            assert len(payload) == 4 * dim
            assert np.isfinite(np.frombuffer(payload, "<f4")).all()
        else:
            assert mode != "hidden"
            assert set(metrics) == {"n", "accuracy", "loss"}
            assert payload == b""
            if mode == "charged":
                assert metrics["loss"] is None
            else:
                assert metrics["n"] == HELD_OUT[sent.site]
    assert seen == {"train", "close"} | ({"evaluate"} if mode != "hidden" else set())
    for sent in one.wire.down:
        _, header, payload = parsed(sent)
        assert set(header) == {"kind", "site", "round", "body"}
        assert set(header["body"]) == {"plan", "run"} | ({"status"} if sent.task == "close" else {"counted"})
        assert len(payload) == (0 if sent.task == "close" else 4 * dim)


def test_only_an_unprotected_run_sends_a_training_loss(lab: LabMaker) -> None:
    one = lab(plan_of(rounds=1, training=LOCAL, protect='unit = "none"'))
    one.train()
    (loss,) = {frozenset(parsed(sent)[1]["metrics"]) for sent in one.wire.up if sent.task == "train"}
    assert loss == {"loss"}
    assert not (one.home / "sites").exists()  # nothing protected, nothing charged: no ledger


def test_charged_scores_carry_their_noise(lab: LabMaker) -> None:
    rounds, z = 60, 6.0
    plan = plan_of(rounds=rounds, protect=privacy("record", "site", z=30.0),
                   evaluation=f'metrics = "charged"\nnoise_multiplier = {z}')  # fmt: skip
    one = lab(plan)
    one.train()
    off = []
    for sent in one.wire.up:
        if sent.task == "evaluate" and sent.site != "Switzerland":  # 16 rows: the counts are cut at zero too often
            metrics = parsed(sent)[1]["metrics"]
            off.append(metrics["n"] - HELD_OUT[sent.site])
    assert len(off) == 3 * (rounds + 1)
    # right + wrong: two independent draws of deviation z each, less a little where a count was cut at zero.
    deviation = np.std(off)
    assert 0.8 < deviation / (np.sqrt(2) * z) < 1.2
    assert abs(np.mean(off)) < 4 * np.sqrt(2) * z / np.sqrt(len(off))


def spoiled(table: Table, kind: str) -> Table:
    """Rows that make gradients NaN, infinite or alike; as many as there were."""
    other = table.copy()
    if kind == "all nan":
        other.features[:] = np.nan
    elif kind == "some inf":
        other.features[::3, 0] = np.inf
    elif kind == "huge":
        other.features[:] *= 1e30
    elif kind == "zeros":
        other.features[:] = 0
        other.labels[:] = 0
    return other


@pytest.mark.parametrize("protect", PROTECTED)
def test_length_and_form_of_frames_do_not_depend_on_rows(protect: str, lab: LabMaker) -> None:
    plan = plan_of(
        rounds=3, sites=counts(), training=training_for(protect), protect=PROTECTED[protect], reproducible=False
    )
    shapes, models = {}, {}
    for kind in ("as they are", "all nan", "some inf", "huge", "zeros", "one row less"):
        one = lab(plan, kind)
        held = one.prepared.rows["Hungary"].train
        table = held.take(np.arange(1, len(held))) if kind == "one row less" else spoiled(held, kind)
        one.hold("Hungary", table)
        one.train()
        shapes[kind] = [
            (sent.site, sent.task, sent.round, len(sent.frame), form(parsed(sent)[1])) for sent in one.wire.up
        ]
        models[kind] = one.coordinator.state.model
        # The step of a site without one usable row is a step like any other: it is charged.
        with SiteStore.open(one.home / "sites" / "Hungary.sqlite", "Hungary") as store:
            assert [count for _, count in store.charged("lab")] == [3]
        assert all(record["answered"] == sorted(SITES) for record in one.journal.records())
    assert all(shape == shapes["as they are"] for shape in shapes.values())
    assert all(np.isfinite(model).all() for model in models.values())


def form(value: Any) -> Any:
    """The document without its values: numbers and hashes become their kind and length."""
    if isinstance(value, dict):
        return {key: form(item) for key, item in value.items()}
    return (type(value).__name__, len(value) if isinstance(value, str) else 0)


def test_empty_poisson_batches_are_noised_sent_and_charged(lab: LabMaker) -> None:
    plan = plan_of(rounds=5, training='batch = "poisson"\nsampling_rate = 0.001\nlocal_steps = 2\nlearning_rate = 0.01',
                   protect=privacy("record", "site", z=2.0))  # fmt: skip
    one = lab(plan)
    one.train()
    assert np.isfinite(one.coordinator.state.model).all()
    for number in range(1, 6):
        assert all(np.std(vector) > 0 for vector in one.releases(number).values())
    for site in SITES:
        with SiteStore.open(one.home / "sites" / f"{site}.sqlite", site) as store:
            ((event, count),) = store.charged("lab")
            assert isinstance(event, Event)
            assert (count, event.steps, event.sampling_rate) == (5, 2, 0.001)


@pytest.mark.parametrize("error", [RuntimeError, ValueError, MemoryError, DataError, ZeroDivisionError])
@pytest.mark.parametrize("task", ["train", "evaluate"])
def test_of_a_fault_only_its_class_leaves(task: str, error: type[Exception], lab: LabMaker) -> None:
    secret = "patient 4711 has ca = 3"  # noqa: S105  (a row, not a password)
    plan = plan_of(rounds=1, protect=privacy("record", "site", z=4.0), evaluation='metrics = "public"')
    one = lab(plan)

    def explode(*_: object) -> None:
        raise error.of("row 17", needs="no", got=secret, hint=secret) if issubclass(error, DataError) else error(secret)

    setattr(one.simulation.sites["Hungary"]._learner, task, explode)
    one.train()
    (frame,) = {sent.frame for sent in one.wire.up if (sent.site, sent.task, sent.round) == ("Hungary", task, 1)}
    kind, header, payload = parsed(Sent("Hungary", task, 1, frame))
    assert (kind, payload, set(header)) == (2, b"", {"kind", "site", "round", "body"})
    assert header["body"] == {"error": error.__name__}
    assert all(secret.encode() not in sent.frame for sent in one.wire.up + one.wire.down)
    assert secret not in json.dumps(one.journal.records())
    assert secret.encode() not in (one.home.parent / f"{one.run_name}.sqlite").read_bytes()


def test_a_ledger_head_on_the_wire_does_not_let_anyone_test_a_guess_of_the_rows(lab: LabMaker) -> None:
    """Whoever knows the plan, the wire and all rows but one could hash each guess of that row into the chain and compare."""
    one = lab(plan_of(rounds=2, protect=privacy("record", "site", z=4.0)))
    one.train()
    for site in SITES:
        sent = parsed(next(s for s in one.wire.up if (s.site, s.task, s.round) == (site, "train", 2)))[1]["metrics"]
        with SiteStore.open(one.home / "sites" / f"{site}.sqlite", site) as store:
            entries = list(store.entries("heart"))
        kept = str(entries[0].body["fingerprint"])
        plain = one.prepared.rows[site].train.fingerprint()
        # The attack works for whoever has the key (so the test could fail), and for nobody else.
        assert sent["ledger_head"] in hashes(entries, kept)
        assert sent["ledger_head"] not in hashes(entries, plain)
        assert kept != plain


def hashes(entries: list[Entry], fingerprint: str) -> set[str]:
    """Build the chain anew with this fingerprint and return the hashes of its links."""
    previous, found = genesis("heart"), set()
    for entry in entries:
        body = {key: fingerprint if key == "fingerprint" else value for key, value in entry.body.items()}
        link = replace(entry, body=body, previous=previous)
        previous = link.hash
        found.add(previous)
    return found


def test_a_changed_row_shows_in_the_ledger_but_not_on_the_wire(lab: LabMaker) -> None:
    plan = plan_of(rounds=1, protect=privacy("record", "site", z=4.0))
    held: dict[str, SiteRows] = {}
    prints = []
    for run in ("one", "two", "three"):
        one = lab(plan, run=run, rows=held)
        one.train()
        with SiteStore.open(one.home / "sites" / "Hungary.sqlite", "Hungary") as store:
            prints.append(next(e.body["fingerprint"] for e in store.entries("heart") if e.run == run))
        if run == "two":
            rows = one.prepared.rows["Hungary"]
            held = {"Hungary": replace(rows, train=spoiled(rows.train, "zeros"))}
    assert prints[0] == prints[1] != prints[2]
    assert sum(TRAINING_ROWS.values()) == 486


def test_scores_of_a_private_head_do_not_leave(lab: LabMaker) -> None:
    """A head kept at the site has met neither clip nor noise: what it scores on public rows tells about the private ones."""

    def plan(metrics: str) -> Plan:
        return plan_of(
            model='name = "mlp"\nhidden = [8]\nlocal_layers = "head"', training='batch = "full"\nlocal_steps = 1',
            protect=privacy("site", "site"), evaluation=f'metrics = "{metrics}"',
        )  # fmt: skip

    with pytest.raises(PlanError, match=r"evaluation\.metrics"):
        lab(plan("public"))
    one = lab(plan("hidden"), "b")
    one.train()
    assert {sent.task for sent in one.wire.up} == {"train", "close"}
