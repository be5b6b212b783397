"""What a site takes for a task of its run, and what it says where it does not."""

import logging

from consilia.core.canonical import Json
from consilia.core.errors import ConsiliaError, ProtocolError
from consilia.core.update import ProtocolMessage
from consilia.core.wire import encode
from consilia.plan.run_plan import SiteHalf

_log = logging.getLogger("consilia.site")


def require_agreed(task: ProtocolMessage, half: SiteHalf, run: str) -> None:
    """Check that a task is of this site's run and plan, and of a kind that the plan has.

    Raises:
        ProtocolError: Saying what does not fit.
    """
    name = half.terms.name
    for key, mine in (("plan", half.digest), ("run", run)):
        if task.body.get(key) != mine:
            raise refusal(name, f"a task of {key} {mine[:12]}", got=str(task.body.get(key))[:12],
                          hint="Both ends must have checked the same plan")  # fmt: skip
    work = ("prepare", "add") if half.plan.aggregation.mode == "two-phase" else ("train",)
    kinds = (*work, "evaluate", "sum", "close")
    if task.site != name or task.kind not in kinds:
        raise refusal(name, f"a {', '.join(kinds[:-1])} or close task of its own", got=f"{task.kind} for {task.site}",
                      hint="Ask each site by its name")  # fmt: skip


def counted(task: ProtocolMessage) -> int:
    """Return the last round in which the site's answer counted, as the coordinator says; 0 where it says none."""
    value = task.body.get("counted")
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def text(task: ProtocolMessage, key: str) -> str:
    """Return what a task says under this key.

    Raises:
        ProtocolError: If it says nothing there.
    """
    value: Json = task.body.get(key)
    if not isinstance(value, str):
        raise refusal(task.site, f"a task with a {key}", got="none", hint="Both ends must run compatible versions")
    return value


def refusal(site: str, needs: str, got: str, hint: str) -> ProtocolError:
    """Return the error for a task that this site does not take."""
    return ProtocolError.of(f"site {site}", needs=needs, got=got, hint=hint)


def refused(site: str, number: int, error: Exception) -> bytes:
    """Return what leaves a site that does not answer a task: the error's class. The rest stays in its own log."""
    if isinstance(error, ConsiliaError):
        _log.warning("site %s refused round %d: %s", site, number, error)
    else:
        _log.error("site %s failed in round %d", site, number, exc_info=error)
    kind = "refused" if isinstance(error, ConsiliaError) else "failed"
    return encode(ProtocolMessage(kind, site, number, {"error": type(error).__name__}))
