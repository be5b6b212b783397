"""The Ray cluster that a run computes on: the one that RAY_ADDRESS names, or one of its own on this machine."""

import logging
import os
import shutil
import signal
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ray

from consilia.core.errors import TransportError

ADDRESS = "RAY_ADDRESS"
_LONGEST = 40  # characters: Ray puts sockets below its folder, whose whole paths may have 107


@contextmanager
def cluster() -> Iterator[bool]:
    """Connect to a cluster while this is open; True if it was started for it, on this machine alone.

    A program that has connected itself keeps its connection.

    Raises:
        TransportError: If the cluster cannot be reached or started.

    Guarantees:
        A cluster started here asks for a token, listens on loopback only (unless the program imported Ray before), keeps its
        files in a folder that only this user can enter, and is gone afterwards with all its processes and files.
    """
    if ray.is_initialized():
        yield False
        return
    address = os.environ.get(ADDRESS, "")
    own = address in ("", "local")
    folder = _folder() if own else None
    try:
        with _handlers_kept(), _told(address):
            if own:
                ray.init("local", num_cpus=len(os.sched_getaffinity(0)), include_dashboard=False, _temp_dir=f"{folder}/r",
                         log_to_driver=False, logging_level=logging.ERROR)  # fmt: skip
            else:
                ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
        yield own
    finally:
        ray.shutdown()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _told(address: str) -> Iterator[None]:
    """Say in one sentence why there is no cluster."""
    who, needs = "engine ray", "a Ray cluster on this machine"
    hint = f"Free memory and disk, or name a cluster: {ADDRESS}=host:port"
    if address not in ("", "local"):
        who, needs = f"environment variable {ADDRESS}", "a Ray cluster that this machine is in, as host:port or auto"
        hint = f"Compare it with `ray status`; without {ADDRESS} a cluster is started here"
        if "://" in address:
            raise TransportError.of(who, needs=needs, got=address, hint=hint)
    elif os.environ.get("RAY_AUTH_MODE", "token").lower() != "token":
        raise TransportError.of("environment variable RAY_AUTH_MODE", needs="token, for a cluster that is started here",
                                got=os.environ["RAY_AUTH_MODE"], hint="Leave it out: that is the default")  # fmt: skip
    try:
        with warnings.catch_warnings():
            # Ray announces a change of its own defaults for accelerators; nothing here uses one.
            warnings.filterwarnings("ignore", message="Tip: In future versions of Ray", category=FutureWarning)
            yield
    except (ConnectionError, TimeoutError, OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        got = f"{type(error).__name__}: {(str(error).strip() or 'no answer').splitlines()[0]}"
        raise TransportError.of(who, needs=needs, got=got, hint=hint) from None


def _folder() -> Path:
    # Of mode 700, for logs, sockets, and rows that do not fit into memory; Ray opens its own folder, inside, to everybody.
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    if len(str(folder)) > _LONGEST:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    return folder


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Keep this process's own word on SIGTERM, which Ray replaces by one that ends it at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
