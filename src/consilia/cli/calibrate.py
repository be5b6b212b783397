"""`consilia calibrate`: the noise that a target needs."""

from typing import Annotated

import typer

from consilia.cli import options, output


def calibrate(
    epsilon: Annotated[float, typer.Option("--epsilon", metavar="E", help="Target for all steps together.")],
    delta: options.Delta,
    sampling_rate: options.SamplingRate,
    steps: options.Steps,
    json: options.Json = False,
) -> None:
    """Find the smallest noise multiplier that keeps T steps within epsilon."""
    from consilia.cli.quantities import require

    require(delta=delta, sampling_rate=sampling_rate, steps=steps, epsilon=epsilon)
    from consilia import api
    from consilia.cli.account import show

    found = api.calibrate(epsilon=epsilon, delta=delta, sampling_rate=sampling_rate, steps=steps)
    if json:
        output.emit(found)
    else:
        show(found)
