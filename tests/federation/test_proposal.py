"""A plan on its way to becoming a run: one site that is slow or silent, and a file that is gone."""

from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from tests.federation.hospitals import HOSPITALS, found, plan_text, services, wired

from consilia.core.update import Gone
from consilia.federation.proposal import ASKED, Proposal
from consilia.plan.load import from_text
from consilia.plan.travelling import travelling
from consilia.rounds.ports import Arrival, Transport

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
MUTE = "Hungary"


class OneMute:
    """Sites of which one hears and says nothing: whoever waits for it waits until the time is up."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.now = 0.0
        self.asked = 0
        self._waited_for = False

    def clock(self) -> float:
        return self.now

    def send(self, site: str, frame: bytes) -> None:
        if site != MUTE:
            return self.inner.send(site, frame)
        self.asked += 1
        self._waited_for = True
        return None

    def events(self, timeout: float, of: Collection[str] | None = None) -> Iterator[Arrival | Gone]:
        yield from self.inner.events(timeout, of)
        if self._waited_for:
            self._waited_for = False
            self.now += timeout
            yield Gone(MUTE, "no answer before the deadline")


def test_a_mute_site_holds_up_rounds_ever_more_rarely(tmp_path: Path) -> None:
    with services(found(tmp_path)) as sites:
        counts = dict.fromkeys(HOSPITALS, 400)
        text = plan_text().replace(
            'counts = "public"', "[sites.counts]\n" + "".join(f"{k} = {v}\n" for k, v in counts.items())
        )
        line = OneMute(wired(sites))
        one = Proposal("heart-1", travelling(from_text(text)), HOSPITALS, None, patience=0.0, clock=line.clock)
        rounds, each = 200, 10.0
        for _ in range(rounds):
            one.advance(line, HOSPITALS)
            line.now += each
        assert one.enrolment.answers[MUTE] == "silent"
        assert one.enrolment.accepted == [name for name in HOSPITALS if name != MUTE]
        assert 2 <= line.asked <= 7
        assert line.now <= rounds * each + 7 * ASKED


def test_weights_are_read_for_an_offer_and_no_longer(tmp_path: Path) -> None:
    with services(found(tmp_path)) as sites:
        one = Proposal("heart-1", travelling(from_text(plan_text())), HOSPITALS, None, patience=0.0)
        one.advance(wired(sites), HOSPITALS)
        assert one.ready()
        one.initial = (
            tmp_path / "gone.safetensors"
        )  # every site has its copy: a run under way does not end for want of it
        one.advance(wired(sites), HOSPITALS)
        assert one.ready()
