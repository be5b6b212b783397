"""A PostgreSQL server of the tests' own: in a temporary folder, on a local socket, never the system's."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

_BUILDS = Path("/usr/lib/postgresql")


def programs() -> Path | None:
    """Return the folder of initdb and pg_ctl, or None."""
    on_path = shutil.which("initdb")
    if on_path is not None:
        return Path(on_path).resolve().parent
    found = sorted(_BUILDS.glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    return found[-1].parent if found else None


class Cluster:
    """A running server; its superuser is `postgres`, and everybody on the socket is trusted."""

    def __init__(self, bin: Path, folder: Path, port: int = 5432) -> None:
        self.bin = bin
        self.folder = folder
        self.data = folder / "data"
        self.port = port
        self._made = 0
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:  # the server refuses to run as root
            user = pwd.getpwnam("postgres")
            os.chown(folder, user.pw_uid, user.pw_gid)
            self._user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def command(self, name: str, *arguments: str) -> None:
        with (self.folder / "commands").open("ab") as log:
            done = subprocess.run(
                [str(self.bin / name), *arguments], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                **self._user,
            )  # fmt: skip
        if done.returncode:
            raise RuntimeError((self.folder / "commands").read_text())

    def make(self) -> None:
        self.command("initdb", "-D", str(self.data), "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "-N",
                     "--no-instructions")  # fmt: skip

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses= -c unix_socket_directories={self.folder}"
        self.command("pg_ctl", "-D", str(self.data), "-w", "-l", str(self.folder / "log"), "-o", options, "start")

    def stop(self, mode: str = "immediate") -> None:
        self.command("pg_ctl", "-D", str(self.data), "-w", "-m", mode, "stop")

    def restart(self, mode: str = "immediate") -> None:
        self.stop(mode)
        self.start()

    def url(self, database: str = "postgres", user: str = "postgres", password: str = "") -> str:
        secret = f":{password}" if password else ""
        return f"postgresql://{user}{secret}@/{database}?host={self.folder}&port={self.port}"

    @contextmanager
    def sql(self, database: str = "postgres") -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        where = f"host={self.folder} port={self.port} user=postgres dbname={database}"
        with psycopg.connect(where, autocommit=True) as connection:
            yield connection

    def database(self) -> str:
        """Make a database; return its name."""
        self._made += 1
        name = f"test_{self._made}"
        with self.sql() as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return name

    def emptied(self, database: str) -> str:
        """Empty a database; quicker than another one."""
        with self.sql(database) as connection:
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
        return self.url(database)

    def sessions(self, database: str) -> list[int]:
        with self.sql() as connection:
            found = connection.execute("SELECT pid FROM pg_stat_activity WHERE datname = %s", (database,)).fetchall()
        return [pid for (pid,) in found]


@contextmanager
def running() -> Iterator[Cluster]:
    """Make and start a server, and take it away afterwards."""
    bin = programs()
    if bin is None:
        raise RuntimeError("no PostgreSQL is installed")
    folder = Path(tempfile.mkdtemp(prefix="consilia-pg-"))  # short: a socket's path has at most 107 bytes
    cluster = Cluster(bin, folder)
    try:
        cluster.make()
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop()
    finally:
        shutil.rmtree(folder)
