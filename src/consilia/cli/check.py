"""`consilia check`: every problem of a plan at once, or what follows from it."""

from consilia.cli import options, output


def check(
    plan: options.PlanFile, set: options.Overrides = None, link: options.Link = 10.0, json: options.Json = False
) -> None:
    """Check a plan and its data: all problems at once, or schedule, noise, epsilon, and bytes and hours over a link."""
    from pathlib import Path

    from consilia.data.advice import advise
    from consilia.federation.simulation import prepare
    from consilia.plan.facts import facts
    from consilia.plan.forecast import forecast, hours
    from consilia.plan.load import load

    prepared = prepare(load(plan, list(set or [])), Path.cwd())
    checked = prepared.run_plan
    notes = {site: advise(rows.train) for site, rows in prepared.rows.items()}
    notes |= {"all sites": list(next(iter(prepared.rows.values())).train.notes)}
    if json:
        ahead = forecast(checked)
        output.emit({**facts(checked), "forecast": {**ahead, "hours": hours(ahead, link)}, "notes_on_rows": notes})
    else:
        from consilia.cli.summary import show

        show(str(plan), facts(checked), forecast(checked), notes, link)
