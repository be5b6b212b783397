"""Arguments and options that several commands share, so that they read and behave the same everywhere."""

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", metavar="", help="Print one JSON document; progress goes to stderr.")]
PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan, such as examples/plans/heart.toml.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key, such as privacy.epsilon=3. Repeatable."),
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, such as runs/heart-...")]
SamplingRate = Annotated[
    float, typer.Option("--sampling-rate", metavar="Q", help="Chance of a record to join a step; 1: all join.")
]
Steps = Annotated[int, typer.Option("--steps", metavar="T", help="Noisy steps in all, over all rounds.")]
Delta = Annotated[float, typer.Option("--delta", metavar="D", help="Delta of the guarantee, such as 1e-5.")]
Link = Annotated[
    float,
    typer.Option(
        "--link", metavar="MBITS", min=0.001, help="Speed of a site's link in Mbit/s, for the hours of transfer."
    ),
]
