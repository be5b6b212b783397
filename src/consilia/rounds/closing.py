"""The end of a run, told to every site."""

from consilia.core.update import ProtocolMessage, Release
from consilia.plan.run_plan import RunPlan
from consilia.rounds import claims
from consilia.rounds.exchange import exchange
from consilia.rounds.ports import Transport


def close(plan: RunPlan, run: str, status: str, transport: Transport) -> dict[str, str]:
    """Tell every site that the run ended; return the heads of the sites' ledgers, as each reported it."""
    number = len(plan.schedule) + 2
    heads: dict[str, str] = {}

    def accept(site: str, item: Release | ProtocolMessage) -> None:
        if isinstance(item, ProtocolMessage) and item.kind == "closed" and item.site == site:
            head = claims.head(item.body.get("ledger_head"))
            if head is not None:
                heads[site] = head

    tasks = {
        terms.name: ProtocolMessage("close", terms.name, number, {"plan": plan.digest, "run": run, "status": status})
        for terms in plan.sites
    }
    exchange(
        transport, tasks, accept=accept, gone=lambda site, why: None, timeout=plan.plan.aggregation.deadline_seconds
    )
    return heads
