"""Where the coordinator's store is: a file by its path, or a database by its URL."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from consilia.core.errors import StoreError

_EXAMPLES = "sqlite:////var/lib/consilia/store.sqlite or postgresql://user@host/database"


@dataclass(frozen=True)
class Place:
    """A store's place.

    Attributes:
        path: Of the SQLite file; None for PostgreSQL.
        url: Of the PostgreSQL database; None for SQLite. It may hold a password: never show it.
        label: How people name it, without any secret.
    """

    path: Path | None
    url: URL | None
    label: str

    def lock_file(self, run: str | None) -> Path:
        """Return the file whose lock stands for a run: of many, or (None) of the one that an SQLite file holds."""
        if run is None:
            return Path(f"{self.path}.lock")
        return Path(f"{self.path}.locks") / hashlib.sha256(run.encode()).hexdigest()[:32]


def place_of(place: Path | str) -> Place:
    """Tell a file from a URL.

    Args:
        place: The path of an SQLite file, or the URL of an SQLite file or a PostgreSQL database.

    Raises:
        StoreError: If the URL cannot be read or names something else; no password in it is shown.
    """
    if isinstance(place, Path):
        return Place(place, None, str(place))
    try:
        url = make_url(place)
    except (ArgumentError, ValueError):
        # Not shown: nobody knows which part of it is a password.
        raise StoreError.of("the coordinator's store", needs="a URL", got="a text that is none",
                            hint=f"Write {_EXAMPLES}") from None  # fmt: skip
    if url.get_backend_name() == "sqlite" and url.database and url.database != ":memory:" and not url.query:
        path = Path(url.database)
        return Place(path, None, str(path))
    if url.drivername in ("postgresql", "postgres", "postgresql+psycopg") and url.database:
        host = url.host or url.query.get("host") or "this machine"
        port = f":{url.port}" if url.port else ""
        label = f"database {url.database} of PostgreSQL at {host}{port}"
        return Place(None, url.set(drivername="postgresql+psycopg"), label)
    raise StoreError.of("the coordinator's store", needs="the URL of an SQLite file or a PostgreSQL database",
                        got=f"{url.drivername} without a database" if not url.database else url.drivername,
                        hint=f"Write {_EXAMPLES}")  # fmt: skip
