"""A folder of its own for what a study makes."""

from pathlib import Path

from consilia.core.errors import StoreError


def fresh(folder: Path, inner: str, *, what: str) -> Path:
    """Make a folder with one inside it, and return it.

    Args:
        folder: Where; an empty folder will do.
        inner: Name of the folder inside.
        what: How errors call it.

    Raises:
        StoreError: If it holds something already, or cannot be written.
    """
    if folder.exists() and any(folder.iterdir() if folder.is_dir() else [folder]):
        raise StoreError.of(f"{what} {folder}", needs="an empty folder", got="one that holds something",
                            hint="Name another --out")  # fmt: skip
    try:
        (folder / inner).mkdir(parents=True)
    except OSError as error:
        raise StoreError.of(f"{what} {folder}", needs="a folder it may write", got=error.strerror or "an error",
                            hint="Name another with --out") from None  # fmt: skip
    return folder
