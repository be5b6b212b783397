"""Real sites before attested code, and attested code before an operator that answers for sites."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.rounds.bench import RECORD, Bench
from tests.rounds.hand import charged, refused
from tests.rounds.secure_bench import SITES, attested, secret

from consilia.core.canonical import Json
from consilia.core.update import ProtocolMessage, Release
from consilia.core.wire import decode, encode, pack_vector

ME, OTHER = "Cleveland", "Hungary"
BenchMaker = Callable[..., Bench]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, str]]:
    folder = tmp_path_factory.mktemp("tpm")
    with attested(folder) as attester:
        yield attester, (folder / "policy.toml").read_text()


def test_attested_nothing_leaves_before_fresh_evidence_for_this_run(
    machine: tuple[Any, str], tmp_path: Path, bench: BenchMaker
) -> None:
    attester, policy = machine
    (tmp_path / "policy.toml").write_text(policy)
    one = bench(secret("attested", rounds=2, privacy=RECORD, reproducible=False), attester=attester)
    sums: Any = one.gatherer
    body: dict[str, Json] = {**sums._body, "purpose": "update"}
    model = pack_vector(one.prepared.initial)

    def ask(kind: str, payload: bytes, **more: Json) -> bytes:
        task = ProtocolMessage(kind, ME, 1, {**body, "counted": 0, **more}, payload)
        return one.simulation.sites[ME].handle(encode(task))

    def nonce() -> bytes:
        return bytes(decode(ask("sum", b"", stage="challenge"), who="test").payload)

    def shown(context: bytes, fresh: bytes) -> bytes:
        return ask("sum", attester.evidence(context=context, nonce=fresh).to_bytes(), stage="evidence")

    assert refused(ask("train", model))
    old = nonce()
    assert refused(shown(sums._context, bytes(32)))  # evidence for a nonce of the coordinator's
    assert refused(shown(sums._context, old))  # one question, one answer
    assert refused(shown(bytes(32), nonce()))  # evidence for another run
    nonce()
    assert refused(shown(sums._context, old))  # an old nonce
    assert refused(ask("sum", b"evidence", stage="evidence"))
    assert refused(ask("train", model))
    assert charged(one, ME) == 0
    assert not refused(shown(sums._context, nonce()))
    answer = ask("train", model)
    assert not refused(answer)
    assert ask("train", model) == answer
    assert refused(ask("train", pack_vector(one.prepared.initial + 1)))
    assert charged(one, ME) == 1


@pytest.mark.parametrize("lie", ["signed by another site", "another round's", "another site's"])
def test_attested_code_takes_no_answer_but_the_sites_own(
    lie: str, machine: tuple[Any, str], tmp_path: Path, bench: BenchMaker
) -> None:
    """Whoever can seal to the public key could answer for all sites but one, and read that one off the sum."""
    attester, policy = machine
    (tmp_path / "policy.toml").write_text(policy)
    answers: dict[tuple[str, int], bytes] = {}
    lied = []

    def tamper(site: str, _number: int, frame: bytes) -> list[Any]:
        item = decode(frame, who="test")
        if not isinstance(item, Release):
            return [frame]
        answers[site, item.round] = bytes(item.payload)
        if (site, item.round) != (OTHER, 2):
            return [frame]
        lied.append(site)
        if lie == "signed by another site":
            half: Any = copy.copy(one.simulation.sites[OTHER]._sums)
            half._identity = one.simulation.consortium.parties[ME].identity  # type: ignore[union-attr]
            forged = half.update(
                one.transport.asked[OTHER], 0 * one.prepared.initial, None, half._entropy.stream("lie")
            )
        else:
            forged = answers[(OTHER, 1) if lie == "another round's" else (ME, 2)]
        return [encode(replace(item, payload=forged))]

    one = bench(
        secret("attested", rounds=3, privacy=RECORD, reproducible=False, metrics="hidden"), tamper, attester=attester
    )
    one.coordinator.train()
    records = one.journal.records()
    assert lied == [OTHER]
    assert [record["answered"] for record in records] == [
        list(SITES),
        [site for site in SITES if site != OTHER],
        list(SITES),
    ]
    assert set(records[1]["dropped"]) == {OTHER}
