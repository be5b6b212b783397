"""P3. No update counts twice: asked again, a site sends the bytes it has sent; a second answer never replaces the first, equal
or not.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.promises.fleet import Case, Fleet, entropy_for, with_stores
from tests.promises.scenes import Touched, calm, other_payload

from consilia.core.update import Release
from consilia.core.wire import decode
from consilia.rounds.ports import Arrival
from consilia.transport.inprocess import InProcess


class Twice(Touched):
    def changed(self, arrival: Arrival) -> Iterator[Arrival]:
        yield arrival
        item = decode(arrival.frame, who="test")
        if isinstance(item, Release) and item.payload:
            yield arrival
            yield Arrival(arrival.site, other_payload(bytes(arrival.frame)))


def _model(place: Path, shelf: Path, touched: bool) -> np.ndarray:
    case = Case("clear", reproducible=True)
    fleet = Fleet(case, with_stores(case, place / str(touched), shelf), entropy_for(case, 0))
    sites = {name: fleet.open_site(name) for name in case.names}
    wire = InProcess({name: site.handle for name, (site, _) in sites.items()}, lambda: 0.0)
    with fleet.open_journal() as journal:
        coordinator = fleet.coordinator(journal, Twice(wire) if touched else wire, lambda: 0.0)
        model = coordinator.train().model
    for _, store in sites.values():
        store.close()
    return model


def test_answers_that_come_twice_change_no_bit(place: Path, shelf: Path) -> None:
    assert np.array_equal(_model(place, shelf, touched=True), _model(place, shelf, touched=False))


@pytest.mark.parametrize("mode", ["dp", "masks", "masks-dp"])
def test_asked_again_after_kills_a_site_says_the_same(mode: str, place: Path, shelf: Path) -> None:
    for seed in range(6):
        calm(Case(mode), place / str(seed), shelf, {"kill coordinator": 0.08, "repeat": 0.2}, seed).run()
