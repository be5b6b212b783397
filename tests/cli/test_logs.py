"""JSON logs: one object a line, and of an exception its class and place alone, for its text may quote a patient's row."""

import json
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.federation.hospitals import POLICY, found, plan_text, services

from consilia.cli import logs
from consilia.core.update import ProtocolMessage
from consilia.core.wire import encode
from consilia.federation.offer import Offer
from consilia.plan.load import from_text
from consilia.plan.travelling import travelling

PATIENT = "Anna Meyer, 4711"


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Leave the logger as it was: a process starts its log once and for all."""
    root = logging.getLogger("consilia")
    before = root.level, root.propagate, list(root.handlers), os.environ.get("GRPC_VERBOSITY")
    yield
    root.level, root.propagate, root.handlers[:] = before[:3]
    logging.Logger.manager._clear_cache()  # type: ignore[attr-defined]  # levels that children remember
    if before[3] is None:
        os.environ.pop("GRPC_VERBOSITY", None)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def read_row() -> None:
    raise ValueError(f"row 3 cannot be read: {PATIENT}")


def test_a_line_is_an_object_with_time_level_part_and_message(capsys: pytest.CaptureFixture[str]) -> None:
    logs.start(verbose=False)
    log = logging.getLogger("consilia.site")
    log.info("run %s\nends", "größe")
    log.debug("left out")
    [line] = lines(capsys)
    assert set(line) == {"time", "level", "part", "message"}
    assert (line["level"], line["part"], line["message"]) == ("info", "consilia.site", "run größe\nends")
    told = time.strptime(line["time"].split(".")[0], "%Y-%m-%dT%H:%M:%S")
    assert abs(time.mktime(time.gmtime()) - time.mktime(told)) < 60  # UTC


def test_verbose_tells_more(capsys: pytest.CaptureFixture[str]) -> None:
    logs.start(verbose=True)
    logging.getLogger("consilia.site").debug("more")
    assert [line["message"] for line in lines(capsys)] == ["more"]


def test_of_an_exception_its_class_and_place_and_never_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    logs.start(verbose=True)
    try:
        try:
            read_row()
        except ValueError as cause:
            raise RuntimeError(f"because of {PATIENT}") from cause
    except RuntimeError as error:
        logging.getLogger("consilia.site").error("failed", exc_info=error)
        logging.getLogger("consilia.site").exception("failed")
    shown = capsys.readouterr().err
    assert PATIENT not in shown
    assert "Anna" not in shown
    first, second = (json.loads(line) for line in shown.splitlines())
    assert first["error"] == second["error"] == "RuntimeError"
    assert first["at"].startswith("test_of_an_exception_its_class_and_place_and_never_its_text:")


def test_no_exception_at_all_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    logs.start(verbose=False)
    logging.getLogger("consilia.site").error("odd", exc_info=True)  # outside of an except clause
    assert [set(line) for line in lines(capsys)] == [{"time", "level", "part", "message"}]


def test_what_other_libraries_log_is_not_ours(capsys: pytest.CaptureFixture[str]) -> None:
    logs.start(verbose=True)
    logging.getLogger("sqlalchemy").debug("SELECT %s", PATIENT)
    assert capsys.readouterr().err == ""


def survey(site: str) -> bytes:
    offer = Offer("heart-1", travelling(from_text(plan_text())), {}, "")
    return encode(ProtocolMessage("survey", site, 0, offer.body()))


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_a_site_that_fails_over_its_rows_logs_none_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from consilia.federation import site_service

    def fail(*_: object) -> None:
        raise KeyError(PATIENT)

    monkeypatch.setattr(site_service, "own_rows", fail)
    with services(found(tmp_path, policy=POLICY)) as sites:
        logs.start(verbose=True)
        answer = sites["Cleveland"].handle(survey("Cleveland"))
    shown = capsys.readouterr().err
    assert '"error": "KeyError"' in shown
    assert PATIENT not in shown
    assert PATIENT.encode() not in answer
    assert "own_rows" in shown or "fail:" in shown  # where it arose, for whoever mends it


def test_lines_go_to_stderr_only(capsys: pytest.CaptureFixture[str]) -> None:
    logs.start(verbose=False)
    logging.getLogger("consilia").warning("x")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith("}\n")
