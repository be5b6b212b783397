"""`consilia schema`: the JSON schema of plans, for editors."""

from consilia.cli import options, output


def schema(json: options.Json = False) -> None:
    """Print the JSON schema of a plan (always JSON)."""
    from consilia.plan.load import json_schema

    del json  # there is no other form
    output.emit(json_schema())
