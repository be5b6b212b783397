"""`consilia check`: every problem of a plan at once, or what follows from it."""

from consilia.cli import options, output


def check(plan: options.PlanFile, set: options.Overrides = None, json: options.Json = False) -> None:
    """Check a plan and its data: all problems at once, or schedule, noise, epsilon and bytes."""
    from consilia import api
    from consilia.plan.facts import facts, forecast

    checked = api.check(api.load(plan, set=list(set or [])))
    if json:
        output.emit({**facts(checked), "forecast": forecast(checked)})
    else:
        from consilia.cli.summary import show

        show(str(plan), facts(checked), forecast(checked))
