"""From a seed to a schedule, and from a schedule that fails to a smaller one.

    python -m tests.promises.schedules 4711

runs schedule 4711 again, and where it breaks a promise leaves out every fault that it breaks the promise without.
"""

import logging
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.promises.chance import Chance
from tests.promises.fleet import Case
from tests.promises.oracle import ViolationError
from tests.promises.world import World

# Every fifth schedule sums in secret, and every second of these also has noise in shares.
_MODES = ("clear", "dp", "server", "clear", "masks", "dp", "clear", "server", "dp", "masks-dp")


def case_of(seed: int) -> Case:
    """Return the plan of a schedule: three or four sites, two to four rounds."""
    mode = _MODES[seed % len(_MODES)]
    sites = 4 if mode.startswith("masks") or seed % 3 else 3
    return Case(mode, sites, 2 + seed // len(_MODES) % 3, reproducible=mode == "server")


def run(
    seed: int, folder: Path, shelf: Path, case: Case | None = None, rates: Mapping[str, float] | None = None
) -> World:
    """Run a schedule; raises `ViolationError` where it breaks a promise."""
    shutil.rmtree(folder, ignore_errors=True)
    return World(case or case_of(seed), Chance(seed, rates=rates or {}), folder, shelf).run()


def smaller(seed: int, folder: Path, shelf: Path) -> tuple[ViolationError | None, list[str]]:
    """Return how a schedule fails, and the faults that it does not fail without, in order."""
    without: frozenset[int] = frozenset()
    failure, fired = _tried(seed, folder, shelf, without)
    if failure is None:
        return None, []
    left = list(reversed(fired))
    while left:
        number, _ = left.pop(0)
        again, now = _tried(seed, folder, shelf, without | {number})
        if again is not None and again.promise == failure.promise:
            failure, without, fired = again, without | {number}, now
            left = [fault for fault in left if fault in now]
    return failure, [text for _, text in fired]


def _tried(
    seed: int, folder: Path, shelf: Path, without: frozenset[int]
) -> tuple[ViolationError | None, list[tuple[int, str]]]:
    chance = Chance(seed, without)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        World(case_of(seed), chance, folder, shelf).run()
    except ViolationError as violation:
        return violation, chance.fired
    return None, chance.fired


def main() -> None:
    logging.disable()
    with tempfile.TemporaryDirectory() as place:
        for seed in map(int, sys.argv[1:]):
            failure, faults = smaller(seed, Path(place) / "run", Path(place))
            print(f"schedule {seed} {case_of(seed)}: {failure or 'holds'}")
            for fault in faults:
                print(f"  {fault}")


if __name__ == "__main__":
    main()
