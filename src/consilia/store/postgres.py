"""Sessions of PostgreSQL in which what is committed stays, and which notice that the other end is gone."""

from importlib.util import find_spec
from typing import Any

from sqlalchemy import URL, Engine, create_engine, event
from sqlalchemy.pool import NullPool, QueuePool

from consilia.core.errors import StoreError
from consilia.store.faults import BUSY_SECONDS

# Seconds. A peer that vanished without a word is given up after about half a minute, by either end.
_LIBPQ = {
    "connect_timeout": "10", "keepalives_idle": "15", "keepalives_interval": "5", "keepalives_count": "3",
    "tcp_user_timeout": "30000", "application_name": "consilia",
}  # fmt: skip
# The server's own keep-alives let go of a run's lock when the coordinator's machine dies (no matter on a local socket).
_SESSION = (
    "SET tcp_keepalives_idle = 15; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3;"
    f" SET lock_timeout = '{BUSY_SECONDS:g}s'; SET statement_timeout = 0"
)
_SETTINGS = (
    "SELECT current_setting('synchronous_commit'), current_setting('fsync'), current_setting('full_page_writes')"
)


def engine_of(url: URL, who: str, *, pooled: bool) -> Engine:
    """Return an engine; it connects on first use.

    Args:
        url: Of the database.
        who: How errors name it.
        pooled: Keep one connection for the store's transactions; or open one anew each time, for a lock.

    Raises:
        StoreError: If the driver is not installed. A connection raises it if the server does not flush what it commits.
    """
    if find_spec("psycopg") is None:
        raise StoreError.of(
            who, needs="the package psycopg", got="none", hint="Install it: pip install 'consilia[postgres]'"
        )
    given = {name: value for name, value in _LIBPQ.items() if name not in url.query}
    pool: dict[str, Any] = {"poolclass": NullPool}
    if pooled:
        pool = {"poolclass": QueuePool, "pool_size": 1, "max_overflow": 0}
    engine = create_engine(url, connect_args=given, hide_parameters=True, **pool)

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _record: object) -> None:
        try:
            connection.autocommit = True
            _prepare(connection, who)
            connection.autocommit = False
        except BaseException:
            connection.close()
            raise

    return engine


def _prepare(connection: Any, who: str) -> None:
    connection.execute(_SESSION)
    if connection.info.server_version >= 140000:
        connection.execute("SET idle_session_timeout = 0")  # the session that holds a lock says nothing for long
    durable, *settings = connection.execute(_SETTINGS).fetchone()
    if durable not in ("on", "remote_apply"):
        connection.execute("SET synchronous_commit = on")
    for setting, value in zip(("fsync", "full_page_writes"), settings, strict=True):
        if value != "on":
            raise StoreError.of(
                who, needs=f"a server with {setting} = on", got=f"{setting} = {value}",
                hint="Turn it on: without it a round that was committed is lost when the power fails",
            )  # fmt: skip
