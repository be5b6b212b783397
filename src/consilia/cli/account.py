"""`consilia account`: what a mechanism costs."""

from collections.abc import Mapping
from typing import Annotated

import typer

from consilia.cli import options, output


def account(
    sampling_rate: options.SamplingRate,
    noise_multiplier: Annotated[
        float, typer.Option("--noise-multiplier", metavar="S", help="Standard deviation of the noise over clip norm.")
    ],
    steps: options.Steps,
    delta: options.Delta,
    json: options.Json = False,
) -> None:
    """Bound epsilon of T noisy steps on Poisson samples (one record added or removed)."""
    from consilia.cli.quantities import require

    require(delta=delta, sampling_rate=sampling_rate, steps=steps, noise_multiplier=noise_multiplier)
    from consilia import api

    found = api.account(sampling_rate=sampling_rate, noise_multiplier=noise_multiplier, steps=steps, delta=delta)
    if json:
        output.emit(found)
    else:
        show(found)


def show(found: Mapping[str, object]) -> None:
    """Print what an accountant says, as a small table."""
    from rich.table import Table
    from rich.text import Text

    from consilia.report.numbers import bound, plain

    def number(key: str) -> str:
        value = found[key]
        return bound(value if isinstance(value, float | int) else None)

    grid = Table.grid(padding=(0, 3))
    grid.add_column(style="dim")
    grid.add_column()
    for label, value, style in (
        ("epsilon", f"{number('epsilon')}  at delta {number('delta')}", "bold"),
        ("noise multiplier", f"{found['noise_multiplier']:.6g}", "bold" if "target_epsilon" in found else ""),
        ("sampling rate", f"{found['sampling_rate']:g}, Poisson", ""),
        ("steps", plain(found["steps"]), ""),
        ("adjacency", str(found["adjacency"]), ""),
        ("accountant", str(found["accountant"]), ""),
        ("by RDP alone", number("rdp"), ""),
        ("by PLD alone", number("pld"), ""),
    ):
        grid.add_row(label, Text(value, style=style))
    if found.get("textbook") is not None:
        grid.add_row("textbook bound", Text(f"noise multiplier {found['textbook']:.6g}, for comparison: never used"))
    output.console().print(grid)
