"""What a report is made of: one run as plain values, read from its folder."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from consilia.core.errors import StoreError
from consilia.plan.facts import Facts
from consilia.report.numbers import HIDDEN

JOURNAL = "journal.sqlite"


@dataclass(frozen=True)
class Document:
    """One run.

    Attributes:
        run: Id of the run.
        status: "running", "done", "stopped" or "failed".
        reason: Why it ended before its last round, or None.
        plan: The plan in its canonical form.
        facts: The numbers that followed from the plan.
        records: One mapping a round.
        result: The run's summary; None while it runs.
    """

    run: str
    status: str
    reason: str | None
    plan: Mapping[str, Any]
    facts: Facts
    records: list[dict[str, Any]]
    result: Mapping[str, Any] | None = None

    @property
    def last_scored(self) -> Mapping[str, Any]:
        """The result, or while there is none the newest record with metrics, or nothing."""
        if self.result is not None:
            return self.result
        scored = (record for record in reversed(self.records) if record.get("per_site"))
        return next(scored, {})

    @property
    def heads(self) -> Mapping[str, str]:
        """Heads of the sites' ledgers as the coordinator last knew them."""
        return (self.result or {}).get("ledger_heads") or {}

    def score(self, site: str) -> Mapping[str, Any] | None:
        """Return a site's last metrics, or None where they are hidden."""
        entry = (self.last_scored.get("per_site") or {}).get(site, HIDDEN)
        return entry if isinstance(entry, Mapping) else None


def read(folder: Path) -> Document:
    """Read a run's folder; a run that another process is writing may be read as well.

    Raises:
        StoreError: If the folder holds no run that can be read.
    """
    from consilia.store.journal import Journal  # noqa: PLC0415  (a database is not needed to draw a page)

    if not folder.is_dir():
        raise StoreError.of(f"run {folder}", needs="a run's folder", got="no such folder",
                            hint="Name the folder that `consilia run` printed; they lie under runs/")  # fmt: skip
    if not (folder / JOURNAL).is_file():
        raise StoreError.of(f"run {folder}", needs=f"a journal ({JOURNAL})", got="none",
                            hint="Name the folder that `consilia run` printed; they lie under runs/")  # fmt: skip
    with Journal.open(folder / JOURNAL, read_only=True) as journal, legible(folder):
        plan, facts = _agreed(folder, journal.plan_json)
        if journal.result is not None and not journal.result["status"]:
            raise ValueError("a result without an end")
        return Document(
            run=journal.run, status=journal.status, reason=journal.reason, plan=plan, facts=facts,
            records=journal.records(),
            result=cast("Mapping[str, Any] | None", journal.result),
        )  # fmt: skip


@contextmanager
def legible(folder: Path) -> Iterator[None]:
    """Wrap whatever reads a run's values, so that damaged ones are one error wherever they are first used.

    Raises:
        StoreError: In place of what a value of another kind, or none, raises.
    """
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise StoreError.of(
            f"run {folder}", needs="a journal that holds what a run wrote", got=f"other values ({type(error).__name__})",
            hint="It was changed or damaged on disk, or made by another version: restore it, or use that version",
        ) from error  # fmt: skip


def _agreed(folder: Path, text: str) -> tuple[dict[str, Any], Facts]:
    try:
        agreed = json.loads(text)
        plan, facts = agreed["plan"], agreed["facts"]
        sections = [values for name, values in plan.items() if name != "phases"]
        tables = (plan, facts, *sections, *plan["phases"], *facts["sites"], *facts["phases"])
        kinds = [(dict, table) for table in tables] + [(str, agreed["data_folder"]), (str, agreed["home"])]
        if not all(isinstance(value, kind) for kind, value in kinds) or not isinstance(facts["rounds"], int):
            raise TypeError("not a plan and its numbers")
        return plan, cast("Facts", facts)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        needs, got = "the plan and the numbers that followed from it", f"none ({type(error).__name__})"
        hint = "Its journal was made by another version of Consilia: use that one"
        raise StoreError.of(f"run {folder}", needs=needs, got=got, hint=hint) from None
