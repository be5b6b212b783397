"""Files that keys and rosters lie in: whole or not at all, secret ones for their owner only, nothing overwritten unasked."""

import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from consilia.core.errors import PlanError, StoreError

SECRET, PUBLIC = 0o600, 0o644
_MOST_SECRET = 1 << 14  # bytes; keys take less than a tenth
_KEYS = "keys are made by consilia roster init (the consortium's) and consilia roster add (a member's)"


def read_secret(path: Path) -> bytes:
    """Return what a file holds that nobody but its owner can read or change.

    Raises:
        StoreError: If it is no such file: a link, another user's, readable by others, missing.
    """
    return _read(path, _MOST_SECRET, others=0o077, needs="mode 600: read and written by its owner alone", word="key")


def read_trusted(path: Path, most: int) -> bytes:
    """Return what a file holds that nobody but its owner can change, at most `most` bytes.

    Raises:
        StoreError: If it is no such file.
    """
    return _read(path, most, others=0o022, needs="to be written by its owner alone", word="file")


def read_public(path: Path, most: int, start: str = _KEYS) -> bytes:
    """Return what a file holds that anybody may have written, at most `most` bytes.

    Args:
        path: The file.
        most: Bytes.
        start: Where such a file comes from, for whoever has none.

    Raises:
        StoreError: If it cannot be read, or is longer.
    """
    return _read(path, most, others=0, needs="", word="file", start=start)


def _read(path: Path, most: int, *, others: int, needs: str, word: str, start: str = _KEYS) -> bytes:
    who = f"{word} {path}"
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (os.O_NOFOLLOW if others else 0))
    except OSError as error:
        got = "a symbolic link" if error.errno == errno.ELOOP else error.strerror or "an error"
        hint = "Put the file itself there: a link can lead to one that others change" if error.errno == errno.ELOOP else (
            f"Check the path; {start}"
        )  # fmt: skip
        raise StoreError.of(who, needs="a file that this user may read", got=got, hint=hint) from None
    try:
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode):
            raise StoreError.of(who, needs="a file", got="something else", hint="Check the path")
        if others and os.stat(path.parent).st_mode & 0o022:
            raise StoreError.of(f"folder {path.parent}", needs="to be written by its owner alone", got="one others may change",
                                hint=f"chmod go-w {path.parent}")  # fmt: skip
        if others and state.st_uid not in (os.geteuid(), 0):
            raise StoreError.of(who, needs="to belong to the user who runs this", got=f"user number {state.st_uid}",
                                hint=f"Run as that user, or: chown {os.geteuid()} {path}")  # fmt: skip
        if state.st_mode & others:
            raise StoreError.of(who, needs=needs, got=f"mode {stat.S_IMODE(state.st_mode):o}",
                                hint=f"If nobody can have taken a copy: chmod go-rwx {path}; else revoke the member")  # fmt: skip
        with os.fdopen(handle, "rb", closefd=False) as file:
            raw = file.read(most + 1)
    except OSError as error:
        raise StoreError.of(who, needs="to be readable", got=error.strerror or "an error",
                            hint="Check the disk, or restore the file from a copy") from None  # fmt: skip
    finally:
        os.close(handle)
    if len(raw) > most:
        raise StoreError.of(who, needs=f"at most {most} bytes", got="more", hint="Check that it is the right file")
    return raw


def create(path: Path, content: bytes, mode: int = PUBLIC) -> None:
    """Make a file, whole or not at all, on the disk when this returns.

    Raises:
        StoreError: If there is one already, or it cannot be written.
    """
    with _writable(path), _aside(path, content, mode) as aside:
        try:
            os.link(aside, path)
        except FileExistsError:
            raise StoreError.of(f"file {path}", needs="a name that is free", got="a file that exists",
                                hint="Files with keys are never overwritten: move it away first") from None  # fmt: skip
        _sync_folder(path.parent)


def replace(path: Path, content: bytes, mode: int = PUBLIC) -> None:
    """Put new content into a file: after a crash it holds the old or the new, on the disk when this returns.

    Raises:
        StoreError: If it cannot be written.
    """
    with _writable(path), _aside(path, content, mode) as aside:
        os.replace(aside, path)
        _sync_folder(path.parent)


def move(old: Path, new: Path) -> None:
    """Rename a file over another, durably.

    Raises:
        StoreError: If that fails.
    """
    with _writable(new):
        os.replace(old, new)
        _sync_folder(new.parent)


def remove(path: Path) -> None:
    """Remove a file where there is one.

    Raises:
        StoreError: If that fails.
    """
    with _writable(path), suppress(FileNotFoundError):
        path.unlink()


def make_folder(folder: Path, files: Mapping[str, tuple[bytes, int]]) -> None:
    """Make a folder that only its owner may enter, with these files (content and mode), all or nothing.

    An empty folder that is there, such as a volume's, is filled and keeps its mode.

    Raises:
        PlanError: If it exists and is no empty folder.
        StoreError: If it cannot be written.
    """
    with _writable(folder):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise PlanError.of(f"folder {folder}", needs="a new or empty folder", got="one that holds files",
                               hint="Keys are never overwritten: name another folder") from None  # fmt: skip
        if folder.exists():
            _fill(folder, files)
            return
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))  # mode 700
        try:
            for name, (content, mode) in files.items():
                _write(aside / name, content, mode)
            _sync_folder(aside)
            os.rename(aside, folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        _sync_folder(folder.parent)


def _fill(folder: Path, files: Mapping[str, tuple[bytes, int]]) -> None:
    made: list[Path] = []
    try:
        for name, (content, mode) in files.items():
            create(folder / name, content, mode)
            made.append(folder / name)
    except StoreError:
        for path in made:
            path.unlink()
        raise


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other runs of `consilia roster` out of a folder.

    Raises:
        StoreError: If there is no such folder, or another run is at work in it.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise StoreError.of(f"folder {folder}", needs="a folder that consilia roster init or consilia roster add made",
                            got=error.strerror or "an error", hint="Check the path; --dir names it") from None  # fmt: skip
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise StoreError.of(f"folder {folder}", needs="one command at a time", got="another at work in it",
                            hint="Wait until it has ended, then run this again") from None  # fmt: skip
    finally:
        os.close(handle)


@contextmanager
def _writable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError.of(f"file {path}", needs="to be written", got=error.strerror or "an error",
                            hint="Check the folder's permissions and the space left; nothing was changed") from None  # fmt: skip


@contextmanager
def _aside(path: Path, content: bytes, mode: int) -> Iterator[Path]:
    """Write beside the path, under a name that nobody reads."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    os.close(handle)
    aside = Path(name)
    try:
        _write(aside, content, mode)
        yield aside
    finally:
        aside.unlink(missing_ok=True)


def _write(path: Path, content: bytes, mode: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, SECRET)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fchmod(handle, mode)
        os.fsync(handle)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
