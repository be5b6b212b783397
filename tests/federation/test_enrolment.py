"""What a coordinator makes of sites' answers: nothing that one sends counts for another, or shows more than it may."""

from collections.abc import Collection, Iterator, Mapping

import pytest
from tests.federation.hospitals import HOSPITALS, plan_text

from consilia.core.canonical import Json
from consilia.core.update import Gone, ProtocolMessage
from consilia.core.wire import encode
from consilia.federation.enrolment import Enrolment
from consilia.federation.offer import Offer
from consilia.plan.load import from_text
from consilia.plan.travelling import travelling
from consilia.rounds.ports import Arrival

SURVEYED: Mapping[str, Json] = {"run": "heart-1", "input_shape": [13], "classes": 2, "count": 100}


class Scripted:
    """Sites that answer what a test wrote for them; one without an answer is gone."""

    def __init__(self, answers: Mapping[str, bytes]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def send(self, site: str, frame: bytes) -> None:
        self.asked.append(site)

    def events(self, timeout: float, of: Collection[str] | None = None) -> Iterator[Arrival | Gone]:
        for site in self.asked:
            frame = self.answers.get(site)
            yield Gone(site, "no answer before the deadline") if frame is None else Arrival(site, frame)
        self.asked = []


def offer() -> Offer:
    return Offer("heart-1", travelling(from_text(plan_text())), {}, "d" * 64)


def said(site: str, kind: str, body: Mapping[str, Json]) -> bytes:
    return encode(ProtocolMessage(kind, site, 0, dict(body)))


def offered(body: Mapping[str, Json], *, kind: str = "offered", run: str = "heart-1") -> Enrolment:
    one = Enrolment(HOSPITALS)
    line = Scripted({"Cleveland": said("Cleveland", kind, {"run": run, **body})})
    one.offer(line, offer(), b"", ["Cleveland"], 1.0)
    return one


def test_each_answer_is_noted() -> None:
    one = Enrolment(HOSPITALS)
    line = Scripted({
        "Cleveland": said("Cleveland", "offered", {"run": "heart-1", "answer": "accepted", "clauses": []}),
        "Hungary": said("Hungary", "offered", {"run": "heart-1", "answer": "waiting", "clauses": ["approval.mode"]}),
    })  # fmt: skip
    one.offer(line, offer(), b"", HOSPITALS, 1.0)
    assert one.answers == {"Cleveland": "accepted", "Hungary": "waiting", "Switzerland": "silent"}
    assert one.reasons == {"Hungary": "approval.mode", "Switzerland": "no answer before the deadline"}
    assert (one.accepted, one.undecided) == (["Cleveland"], ["Hungary", "Switzerland"])


def test_a_survey_takes_a_refusal_back() -> None:
    one = Enrolment(HOSPITALS)
    one.survey(Scripted({}), offer(), ["Cleveland"], 1.0)
    assert one.answers == {"Cleveland": "silent"}
    one.survey(Scripted({"Cleveland": said("Cleveland", "surveyed", SURVEYED)}), offer(), ["Cleveland"], 1.0)
    assert one.surveyed["Cleveland"].count == 100
    assert (one.answers, one.reasons) == ({}, {})


def test_an_answer_that_is_none_is_silence() -> None:
    wrong: list[bytes] = [
        said("Hungary", "surveyed", SURVEYED),  # another site's name
        said("Cleveland", "surveyed", {**SURVEYED, "run": "heart-2"}),
        said("Cleveland", "surveyed", {**SURVEYED, "classes": True}),
        said("Cleveland", "surveyed", {**SURVEYED, "input_shape": [0]}),
        said("Cleveland", "surveyed", {**SURVEYED, "count": -1}),
        said("Cleveland", "surveyed", {"run": "heart-1"}),
        b"nonsense",
    ]
    for frame in wrong:
        one = Enrolment(HOSPITALS)
        one.survey(Scripted({"Cleveland": frame}), offer(), ["Cleveland"], 1.0)
        assert one.answers == {"Cleveland": "silent"}, frame
        assert one.surveyed == {}


def test_a_site_that_agreed_and_falls_silent_has_agreed() -> None:
    one = offered({"answer": "accepted", "clauses": []})
    one.offer(Scripted({}), offer(), b"", ["Cleveland"], 1.0)
    assert one.answers == {"Cleveland": "accepted"}
    assert one.reasons == {}


def test_an_unknown_answer_is_a_refusal() -> None:
    assert offered({"answer": "certainly", "clauses": []}).answers == {"Cleveland": "refused"}


def test_a_site_cannot_fill_the_coordinators_memory() -> None:
    one = offered({"answer": "refused", "clauses": ["x" * 1000] * 50})
    assert one.answers == {"Cleveland": "refused"}
    assert one.reasons["Cleveland"] == "; ".join(["x" * 300] * 20)
    assert len(offered({"answer": "refused", "clauses": ["x" * 100_000] * 50}).reasons["Cleveland"]) < 200
    assert len(offered({"error": "x" * 100_000}, kind="failed").reasons["Cleveland"]) < 200


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("PolicyError", "its policy.toml cannot be read; its log says more (PolicyError)"),
        ("DataError", "its data file is not as the plan says; its log says more (DataError)"),
        ("KeyError", "it failed; its log says more (KeyError)"),
        (7, "no reason given"),
        (None, "no reason given"),
    ],
)
def test_the_class_of_a_fault_is_put_in_words(error: Json, words: str) -> None:
    one = offered({"error": error}, kind="refused")
    assert one.answers == {"Cleveland": "refused"}
    assert one.reasons == {"Cleveland": words}
