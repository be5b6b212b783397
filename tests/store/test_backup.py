"""Copies made while a coordinator runs are whole, and a run goes on from a restored one."""

import sqlite3
from pathlib import Path

from tests.store.cluster import Cluster

from consilia.store.journal import Journal
from consilia.store.runs import RunQueue


def rounds(journal: Journal, *numbers: int) -> None:
    for number in numbers:
        journal.commit_round(number, state=[b"%d" % number], record={"round": number}, charges=[])


def goes_on(place: str) -> None:
    with RunQueue(place) as queue:
        assert [(run.run, run.status, run.round) for run in queue.open()] == [("r", "running", 2)]
        with queue.held("r"), Journal.open(place, "r") as journal:
            assert (journal.round, journal.state) == (2, b"2")
            rounds(journal, 3)
    with RunQueue(place) as queue:
        assert queue.submit("s", "{}", by="me").status == "queued"  # numbers go on where they were


def test_a_copy_of_a_file(tmp_path: Path) -> None:
    path, copy = tmp_path / "store.sqlite", tmp_path / "copy.sqlite"
    with RunQueue(path) as queue:
        queue.submit("r", "{}", by="me")
        with Journal.create(path, run="r", plan_json="{}", digest="d", state=[b"0"]) as journal:
            rounds(journal, 1, 2)
            source, target = sqlite3.connect(path), sqlite3.connect(copy)
            source.backup(target)
            source.close()
            target.close()
            rounds(journal, 3, 4)
    goes_on(f"sqlite:///{copy}")


def test_a_dump_of_a_server(cluster: Cluster, url: str) -> None:
    name, restored = url.split("/")[3].partition("?")[0], cluster.database()
    dump, where = str(cluster.folder / "dump"), ("-h", str(cluster.folder), "-U", "postgres")
    with RunQueue(url) as queue:
        queue.submit("r", "{}", by="me")
        with queue.held("r"), Journal.create(url, run="r", plan_json="{}", digest="d", state=[b"0"]) as journal:
            rounds(journal, 1, 2)
            cluster.command("pg_dump", *where, "--format=custom", "--file", dump, name)
            rounds(journal, 3, 4)
            cluster.command("pg_restore", *where, "--dbname", restored, "--exit-on-error", dump)
            with cluster.sql(restored) as admin:  # as half a minute later
                admin.execute("UPDATE queue SET until = 0")
            goes_on(cluster.url(restored))
    with cluster.sql() as admin:
        admin.execute(f"DROP DATABASE {restored}")
