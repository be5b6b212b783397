"""A site in a process of its own whose disk fails: at each of its writes, or at each of its flushes.

Arguments: a folder; "full" (no file may grow beyond a limit, which moves on from run to run) or "flush" (whoever started this
makes flushes fail); a folder with empty stores. Prints a JSON list: for each attempt what the site answered, what it had
charged and what it gave away.
"""

import json
import resource
import sys
from pathlib import Path
from typing import Any

from tests.promises.fleet import RUN, Case, Fleet, entropy_for, initial, with_stores

from consilia.core.canonical import Json
from consilia.core.errors import ConsiliaError
from consilia.core.update import ProtocolMessage, Release
from consilia.core.wire import decode, encode, pack_vector
from consilia.rounds.site import Site
from consilia.store.ledger_store import SiteStore

NAME = "Bergen"
CASE = Case("dp", rounds=3)
PAGE, MOST = 4096, 72


def answers(site: Site, store: SiteStore, case: Case) -> list[str]:
    """Lead a site through its rounds as a coordinator does; return what it answered: "released", or a refusal's class."""
    fleet_body: dict[str, Json] = {"plan": site._half.digest, "run": RUN, "counted": 0}
    found = []
    for number in range(1, case.rounds + 1):
        task = encode(ProtocolMessage("train", NAME, number, fleet_body, pack_vector(initial())))
        id = bytes([number]) * 16
        try:
            store.inbox.begin(id, bytes(32))
            answer = site.handle(task)
            store.inbox.keep(id, answer)  # what cannot be kept is not sent
        except ConsiliaError as error:
            found.append(type(error).__name__)
            continue
        item = decode(answer, who="worker")
        found.append("released" if isinstance(item, Release) else str(item.body["error"]))
    return found


def attempt(folder: Path, shelf: Path, limit: int | None, case: Case) -> dict[str, Any]:
    fleet = Fleet(case, with_stores(case, folder, shelf), entropy_for(case, 1))
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    released: list[str] = []
    try:
        site, store = fleet.open_site(NAME)
    except ConsiliaError as error:
        return {"opened": type(error).__name__}
    try:
        if limit is not None:
            log = fleet.site_path(NAME).with_name(f"{NAME}.sqlite-wal").stat().st_size
            resource.setrlimit(resource.RLIMIT_FSIZE, (log + limit, most))
        released = answers(site, store, case)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        store.close()
    with SiteStore.open(fleet.site_path(NAME), NAME) as again:  # the disk has room again, and the site is started anew
        for population in again.populations():
            again.verify(population)
        charged = sum(count for _, count in again.charged(RUN))
    site, store = fleet.open_site(NAME)
    try:
        after = answers(site, store, case)
        charged_after = sum(count for _, count in store.charged(RUN))
    finally:
        store.close()
    return {"answers": released, "charged": charged, "after": after, "charged_after": charged_after}


def main() -> None:
    folder, kind = Path(sys.argv[1]), sys.argv[2]
    shelf = Path(sys.argv[3])
    found = []
    if kind == "full":
        for pages in range(0, MOST, 6):  # each write is of a few pages; some limits cut one in the middle
            found.append(attempt(folder / f"full {pages}", shelf, pages * PAGE + 100, CASE))
    else:
        found.append(attempt(folder / "flush", shelf, None, Case("dp", rounds=12)))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
