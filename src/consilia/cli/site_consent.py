"""What stands behind `consilia site pending`, `approve`, `withdraw` and `policy`: the steward's part of consent."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilia.cli import output

if TYPE_CHECKING:
    from consilia.core.errors import PlanError
    from consilia.plan.consent import Verdict
    from consilia.plan.policy import Policy
    from consilia.plan.run_plan import RunPlan
    from consilia.report.consent import Summary
    from consilia.store.consents import Offered
    from consilia.store.ledger_store import SiteStore

_LEAST = 8  # digits of a digest that name an offer


@dataclass(frozen=True)
class Desk:
    """Where a steward decides.

    Attributes:
        store: The site's file.
        policy: What the site agrees to.
        examine: Makes of an offer the plan that installed code checks here, and judges it; raises if it is not the offer's.
    """

    store: "SiteStore"
    policy: "Policy"
    examine: "Callable[[Offered], tuple[RunPlan, Verdict]]"


def pending(desk: Desk, *, as_json: bool) -> None:
    """Show every plan that waits for approval in full, and what was refused and why."""
    from consilia.cli.consent_view import show

    offers = desk.store.consents.all()
    waiting = [told for offered in offers if offered.answer == "waiting" and (told := _told(desk, offered)) is not None]
    refused = [offered for offered in offers if offered.answer == "refused"]
    if as_json:
        output.emit({
            "waiting": [told.to_json() for told in waiting],
            "refused": [{"run": one.run, "digest": one.digest, "clauses": list(one.clauses)} for one in refused],
        })  # fmt: skip
        return
    terminal = output.console()
    for place, told in enumerate(waiting):
        if place:
            terminal.rule()
        show(terminal, told)
        terminal.print(f"\nTo let it run here: consilia site approve {told.digest[:16]}", markup=False)
    if not waiting:
        terminal.print("No plan waits for approval.")
    for offered in refused:
        terminal.print(f"\nrefused: run {offered.run}", markup=False)
        for clause in offered.clauses:
            terminal.print(f"  {clause}", markup=False)


def approve(desk: Desk, digest: str, *, sure: Callable[[], bool], as_json: bool) -> None:
    """Show a plan and, if the steward is sure, approve its digest: of plan, registered counts, architecture and version.

    Args:
        desk: Where.
        digest: Of the plan, or how it begins where it was offered.
        sure: Asks.
        as_json: Print the summary as one JSON document.

    Raises:
        PlanError: If no such plan was offered, it is another one by now, or the policy refuses it.
    """
    from consilia.cli.consent_view import show

    offered = _offered(desk, digest)
    if offered.answer == "refused":  # nothing is built of it: the policy may forbid just that
        raise _closed(offered.digest, offered.clauses)
    told = _summary(desk, offered)
    if told.answer == "refused":  # since it was offered the policy or the budget has changed
        raise _closed(told.digest, [str(clause) for clause in told.clauses if not clause.holds])
    if not as_json:
        show(output.console(), told)
    if not sure():
        output.say("Nothing was approved.")
        return
    desk.store.consents.approve(told.digest)
    if as_json:
        output.emit({"approved": told.digest, "plan": told.to_json()})
    else:
        output.say(f"Approved {told.digest}. The site takes part when the coordinator offers the plan again.")


def withdraw(store: "SiteStore", digest: str) -> None:
    """Take back an approval; runs that were agreed to go on.

    Raises:
        PlanError: If no digest that was approved begins so.
    """
    from consilia.core.errors import PlanError

    found = [known for known in store.consents.approved() if known.startswith(digest)] if len(digest) >= _LEAST else []
    if len(found) != 1:
        raise PlanError.of("consilia site withdraw", needs=f"{_LEAST} or more digits of one approved digest", got=digest[:64],
                           hint=f"Approved are: {', '.join(sorted(store.consents.approved())) or 'none'}")  # fmt: skip
    store.consents.withdraw(found[0])
    output.say(f"Withdrawn: {found[0]}. Offers of this plan wait again; runs that were agreed to go on.")


def policy(path: Path, *, as_json: bool) -> None:
    """Check a policy's file and show what it means, defaults included.

    Raises:
        PlanError: With every fault of the file.
    """
    from consilia.plan.policy import POLICY, Policy

    found = Policy.read(path)
    values: dict[str, Any] = found.model_dump()
    if as_json:
        output.emit(values)
        return
    from rich.table import Table
    from rich.text import Text

    written = path.read_text(encoding="utf-8-sig")
    terminal = output.console()
    terminal.print(Text.assemble((str(path), "bold"), " is a policy\n"), soft_wrap=True)
    for section, keys in POLICY.sections().items():
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        table.add_column(style="dim", overflow="fold")
        for key, meaning in keys.items():
            stated = re.search(rf"^\s*{key}\s*=", written, re.MULTILINE) is not None
            style = "bold" if stated else ""
            table.add_row(f"  {key}", Text(_shown(values[section][key]), style=style), meaning)
        terminal.print(Text(section, style="bold"))
        terminal.print(table)


def _shown(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, dict):
        return ", ".join(f"{name}: {item:g}" for name, item in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _offered(desk: Desk, digest: str) -> "Offered":
    from consilia.core.errors import PlanError

    waiting = {
        offered.digest: offered for offered in desk.store.consents.all() if offered.answer in ("waiting", "refused")
    }
    found = [one for known, one in waiting.items() if known.startswith(digest)] if len(digest) >= _LEAST else []
    if len(found) == 1:
        return found[0]
    got = "fewer" if len(digest) < _LEAST else f"{digest[:64]}, of {len(found)} plans"
    raise PlanError.of("consilia site approve", needs=f"{_LEAST} or more digits of the digest of one plan that waits", got=got,
                       hint=f"These wait: {', '.join(sorted(known[:16] for known in waiting)) or 'none'}")  # fmt: skip


def _closed(digest: str, clauses: Sequence[str]) -> "PlanError":
    from consilia.core.errors import PlanError

    return PlanError.of(f"plan {digest[:16]}", needs="to keep every clause of the policy", got="; ".join(clauses),
                        hint="An approval opens no clause: change policy.toml, or ask for another plan")  # fmt: skip


def _told(desk: Desk, offered: "Offered") -> "Summary | None":
    """Return a summary, or say on stderr why there is none."""
    from consilia.core.errors import ConsiliaError

    try:
        return _summary(desk, offered)
    except ConsiliaError as error:
        output.say(f"run {offered.run}, plan {offered.digest[:16]}: {error}", style="yellow")
        return None


def _summary(desk: Desk, offered: "Offered") -> "Summary":
    from consilia.report.consent import summary

    plan, verdict = desk.examine(offered)
    half = plan.site(desk.store.site)
    spent = desk.store.spent(half.population)
    return summary(offered.run, half, plan, verdict, spent, desk.policy.limit(half.population))
