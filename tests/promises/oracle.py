"""What must hold of a run whatever happened to it: promises P1 to P14 as checks on what left, what is on disk and what came out.

Reads the files with SQL of its own and computes models with arithmetic of its own: it shares no code with what it judges but the
learner, the wire format and what turns a sum of integers back into numbers.
"""

import json
import sqlite3
from collections import defaultdict
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.promises.fleet import DEADLINE, DIM, RUN, Fleet, Fresh, Rows, identities, initial

from consilia.core.update import ProtocolMessage, Release
from consilia.core.wire import pack_vector
from consilia.pipeline.transform import SumContext
from consilia.rounds.pipelines import shared_seed
from consilia.rounds.secure.masked_site import MaskedSite
from consilia.rounds.secure.shape import UPDATE, shape_of
from consilia.rounds.site import Site
from consilia.rounds.state import from_bytes
from consilia.secagg.messages import Advert, Survivors

TERMINAL = ("done", "stopped", "failed")


class ViolationError(AssertionError):
    """A promise was broken: its number, and how."""

    def __init__(self, promise: str, how: str) -> None:
        super().__init__(f"{promise}: {how}")
        self.promise = promise


def require(holds: bool, promise: str, how: str) -> None:
    if not holds:
        raise ViolationError(promise, how)


class Oracle:
    """Hears what leaves, looks at the disk, and judges."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.case = fleet.case
        self.names = self.case.names
        self.ran: dict[int, set[str]] = defaultdict(set)  # round -> sites that something happened to
        self.number = 0
        self.models: dict[int, set[bytes]] = defaultdict(set)
        self.shown: dict[int, set[bytes]] = defaultdict(set)
        self.released: dict[tuple[str, str], dict[int, set[bytes]]] = defaultdict(lambda: defaultdict(set))
        self.frames: dict[tuple[str, int], Release] = {}
        self.put: dict[str, NDArray[Any]] = {}  # SHA-256 of a masked vector -> what is under the masks
        self.keys: dict[bytes, str] = {}  # of sites in sessions
        self.voted: dict[str, dict[str, bytes]] = defaultdict(dict)
        self.ballots: dict[tuple[str, str], tuple[str, ...]] = {}
        self.seen_round = 0
        self.statuses: list[str] = []
        self._disks: dict[str, sqlite3.Connection] = {}

    # What the network tells.

    def told(self, site: str, task: ProtocolMessage) -> None:
        if task.kind in ("train", "evaluate"):
            if task.kind == "train":
                self._round_begins(task)
                self.models[task.round].add(bytes(task.payload))
            else:
                self.shown[task.round].add(bytes(task.payload))
        if task.kind == "sum" and task.body.get("purpose") == UPDATE:
            self._round_begins(task)
            if task.body.get("stage") == Survivors.STAGE:
                key = str(task.body["session"]), site
                self.ballots[key] = Survivors.from_bytes(task.payload, who="oracle").names

    def _round_begins(self, task: ProtocolMessage) -> None:
        require(task.round >= self.number, "P1", f"round {task.round} was asked after round {self.number}")
        self.number = task.round

    def started(self, name: str, site: Site) -> None:
        """Look over the shoulder of a site that sums in secret."""
        sums = site._sums
        if isinstance(sums, MaskedSite):
            update = sums.update

            def spied(task: ProtocolMessage, vector: NDArray[Any], *rest: Any) -> bytes:
                kept = vector.copy()
                payload = update(task, vector, *rest)
                self.put[sha256(payload).hexdigest()] = kept
                return payload

            sums.update = spied  # type: ignore[method-assign,assignment]

    def hurt(self, site: str) -> None:
        self.ran[self.number].add(site)

    def coordinator_killed(self) -> None:
        if self.case.secure:  # what the sites had put into the round's sum is in no other
            self.ran[self.number] |= set(self.names)
            self.ran[self.number + 1] |= set(self.names)
        self._disk()

    def left(self, site: str, task: ProtocolMessage, answer: Release | ProtocolMessage, frame: bytes) -> None:
        purpose = str(task.body.get("purpose", "evaluation" if task.kind == "evaluate" else UPDATE))
        if isinstance(answer, Release):
            self._released(site, purpose, answer, frame)
        elif answer.kind == "sum":
            self._stage(site, answer, str(task.body["session"]))
        require(not any(secret in frame for secret in self._secrets()), "P11", f"a key of a site left {site}")

    def _released(self, site: str, purpose: str, answer: Release, frame: bytes) -> None:
        sealed = purpose == UPDATE or self.fleet.plan.charges[site].evaluation_event is not None
        if sealed:
            mine = self.released[site, purpose][answer.round]
            mine.add(sha256(frame).digest())
            kind = "P11" if self.case.secure else "P3"  # under masks two contents give away what they differ by
            require(len(mine) == 1, kind, f"{site} answered round {answer.round} ({purpose}) with {len(mine)} contents")
        if purpose == UPDATE:
            self.frames[site, answer.round] = answer
        if self.fleet.plan.charges[site].booked and sealed:
            out = sum(
                len(found) for who, rounds in self.released.items() if who[0] == site for found in rounds.values()
            )
            require(
                self._charged(site) >= out,
                "P2",
                f"{site} has let go of {out} releases and booked {self._charged(site)}",
            )

    def _stage(self, site: str, answer: ProtocolMessage, session: str) -> None:
        stage = str(answer.body.get("stage"))
        if stage == "advert":
            advert = Advert.from_bytes(answer.payload, who="oracle")
            for key in (advert.commitment, advert.mask, advert.channel):
                first = self.keys.setdefault(key, session)
                require(first == session, "P11", f"{site} offered a key of session {first[:8]} in {session[:8]} again")
        elif stage == "vote":
            self.voted[session][site] = bytes(answer.payload)
        elif stage == "reveal":
            secure = self.fleet.plan.secure
            assert secure is not None
            votes = len(self.voted[session])
            require(votes >= secure.threshold, "P10", f"{site} gave shares away after {votes} votes")
            named = self.ballots.get((session, site), ())
            if named:
                require(len(named) >= secure.fewest, "P10", f"{site} helped to open a sum of {len(named)}")

    def _secrets(self) -> list[bytes]:
        return [identities()[name].signing.seed for name in self.names]

    # What is on disk.

    def _sql(self, name: str) -> sqlite3.Connection:
        if name not in self._disks:
            path = self.fleet.journal_path if name == "journal" else self.fleet.site_path(name)
            self._disks[name] = sqlite3.connect(path, isolation_level=None)
        return self._disks[name]

    def _charged(self, site: str) -> int:
        found = self._sql(site).execute("SELECT count(*) FROM entries WHERE kind = 'reserve' AND run = ?", (RUN,))
        return int(found.fetchone()[0])

    def _disk(self) -> dict[str, Any] | None:
        """Check that the journal stands at a round, never between two; return its row."""
        if not self.fleet.begun():
            return None
        sql = self._sql("journal")
        if not sql.execute("SELECT name FROM sqlite_master WHERE name = 'run'").fetchone():
            return None
        run = sql.execute("SELECT round, status FROM run").fetchone()
        if run is None:
            return None
        records = [json.loads(row[0]) for row in sql.execute("SELECT record FROM records ORDER BY round")]
        charges = [json.loads(row[0]) for row in sql.execute("SELECT charges FROM records ORDER BY round")]
        state = from_bytes(sql.execute("SELECT state FROM state").fetchone()[0])
        number, status = run
        require(number >= self.seen_round, "P1", f"the run went back from round {self.seen_round} to {number}")
        self.seen_round = number
        require(
            [record["round"] for record in records] == list(range(1, number + 1)), "P1", "records and round disagree"
        )
        staged = number + 1 if state.pending else number
        require(state.round == staged, "P1", f"the model is of round {state.round}, the run at round {number}")
        booked = self.fleet.plan.charges[self.names[0]].booked
        for record, charge in zip(records, charges, strict=True):
            asked = record["asked"] if booked else []
            require([one["site"] for one in charge] == asked, "P1", f"round {record['round']} lacks its charges")
        return {"round": number, "status": status, "records": records, "charges": charges, "state": state}

    # The end.

    def ended(self, now: float) -> None:
        """Judge the whole run."""
        run = self._disk()
        require(run is not None and run["status"] in TERMINAL, "P8", "the run has no end")
        assert run is not None
        rounds = len(self.fleet.plan.schedule)
        require(now <= 5 * (7 * (2 * rounds + 2) * DEADLINE + 30), "P7", f"the run waited {now:.0f} s")
        self.statuses = [record["status"] for record in run["records"]]
        self._records(run["records"])
        self._models(run)
        self._ledgers(run)
        self._forgotten()
        if isinstance(self.fleet.entropy, Fresh):
            keys = [key for _, key in self.fleet.entropy.keys]
            require(len(keys) == len(set(keys)), "P11", "the same secret randomness was drawn twice")

    def _records(self, records: list[dict[str, Any]]) -> None:
        secure = self.fleet.plan.secure
        needed = secure.fewest if secure is not None else 2
        for record in records:
            asked, answered, dropped = set(record["asked"]), record["answered"], set(record["dropped"])
            require(len(answered) == len(set(answered)), "P3", f"round {record['round']} names a site twice")
            require(all(record["dropped"].values()), "P6", "a site was dropped without a reason")
            counted = record["status"] == "counted"
            fates = set(answered) | dropped if counted or not self.case.secure else asked
            require(
                asked == fates and (counted or record["reason"]),
                "P6",
                f"round {record['round']} has sites without a fate",
            )
            require(not counted or len(answered) >= needed, "P10", f"{len(answered)} answers were enough")
            whole = asked - self.ran[record["round"]]
            if len(whole) >= needed and (secure is None or len(whole) >= secure.threshold):
                why = f"round {record['round']}: nothing happened to {sorted(whole)}; {record['reason']} {record['dropped']}"
                require(counted and whole <= set(answered), "P6", why)

    def _models(self, run: dict[str, Any]) -> None:
        """Compute every round's model again from the answers that the records name, each once, in order of name."""
        require(bool((np.abs(run["state"].model) < np.inf).all()), "P9", "the model is not finite")
        model, momentum = initial(), np.zeros(DIM)
        own = {name: np.zeros(DIM) for name in self.names}
        for record in run["records"]:
            number = record["round"]
            same = self.models[number] <= {pack_vector(model)}
            require(same, "P5", f"round {number} began with another model than the records add up to")
            if record["status"] == "counted":
                mean = self._mean(record, model, own)
                momentum = 0.9 * momentum + mean
                model = (model + 0.5 * momentum).astype(np.float32)
            for name in record["answered"] if record["status"] == "counted" else ():
                self._learned(name, own, record["model_before"])
        require(np.array_equal(run["state"].model, model), "P5", "the model is not the one that the records add up to")

    def _mean(self, record: dict[str, Any], model: NDArray[np.float32], own: dict[str, NDArray[Any]]) -> NDArray[Any]:
        record["model_before"] = model
        weights = {terms.name: terms.weight for terms in self.fleet.plan.sites}
        names, number = record["answered"], record["round"]
        here = sum(weights[name] for name in names)
        if self.case.secure:
            return self._opened(record, model, own, weights)
        total = np.zeros(DIM)
        for name in sorted(names):
            answer = self.frames.get((name, number))
            digest = sha256(pack_vector(model)).hexdigest()
            require(answer is not None and answer.model_digest == digest, "P4", f"{name} trained another model")
            assert answer is not None
            vector = np.frombuffer(answer.payload, "<f4")
            if self.case.mode == "clear":
                expected = self._vector(name, model, own)
                require(np.array_equal(vector, expected), "P14", f"{name} forgot what it kept before round {number}")
            total += weights[name] * vector.astype(np.float64)
        if self.case.mode == "server":
            step, everyone = self.fleet.steps[0].chain, sum(weights[name] for name in record["asked"])
            stream = self.fleet.entropy.stream("server", number)
            return np.asarray(
                step.decode(total, SumContext(stream, shared_seed(self.fleet.plan.plan, number))) / everyone
            )
        return np.asarray(total / here)

    def _opened(
        self,
        record: dict[str, Any],
        model: NDArray[np.float32],
        own: dict[str, NDArray[Any]],
        weights: dict[str, float],
    ) -> NDArray[Any]:
        plan, secure, number = self.fleet.plan, self.fleet.plan.secure, record["round"]
        assert secure is not None
        assert secure.ring is not None
        uploads, heaviest = record["transcript"]["uploads"], max(weights.values())
        require(sorted(uploads) == record["answered"], "P3", f"round {number} signed for other sites than it counted")
        total = np.zeros(shape_of(plan, secure, UPDATE, number, len(self.names)).kept, np.int64)
        for name in record["answered"]:
            require(uploads[name] in self.put, "P3", f"{name} put in something else in round {number}")
            total += self.put[uploads[name]]
            if self.case.mode == "masks":
                real = self.put[uploads[name]] / secure.grids[0].scale * heaviest / weights[name]
                off = np.abs(real - self._vector(name, model, own)).max() * secure.grids[0].scale
                require(off <= heaviest / weights[name] + 1, "P14", f"{name} forgot what it kept before round {number}")
        everyone = record["asked"] if self.case.mode == "masks-dp" else record["answered"]
        return np.asarray(total / secure.grids[0].scale * heaviest / sum(weights[name] for name in everyone))

    def _vector(self, name: str, model: NDArray[np.float32], own: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
        mean = Rows(self.fleet.plan.site(name)).gradients(model).mean(axis=0)
        return np.asarray(0.25 * own[name] - mean, np.float32)

    def _learned(self, name: str, own: dict[str, NDArray[Any]], model: NDArray[np.float32]) -> None:
        own[name] = 0.5 * own[name] + Rows(self.fleet.plan.site(name)).gradients(model).mean(axis=0)

    def _ledgers(self, run: dict[str, Any]) -> None:
        for name in self.names:
            charge = self.fleet.plan.charges[name]
            if not charge.booked:
                continue
            allotted = sum(count for _, count in self.fleet.plan.site(name).events)
            require(self._charged(name) <= allotted, "P2", f"{name} was charged more than it admitted")
            counted = sum(name in record["answered"] for record in run["records"])
            kept = max((one["charges"] for round in run["charges"] for one in round if one["site"] == name), default=0)
            require(
                kept >= counted, "P2", f"the coordinator counted {name} {counted} times and charged it {kept} times"
            )

    def _forgotten(self) -> None:
        """A site that heard of the end keeps no secret of a sum."""
        for name in self.names:
            closed = self._sql(name).execute("SELECT count(*) FROM entries WHERE kind = 'close' AND run = ?", (RUN,))
            if self.case.secure and closed.fetchone()[0]:
                states = self._sql(name).execute("SELECT state FROM sessions WHERE run = ?", (RUN,)).fetchall()
                require(all(len(state) == 16 for (state,) in states), "P11", f"{name} keeps the secrets of a sum")

    def close(self) -> None:
        for disk in self._disks.values():
            disk.close()
