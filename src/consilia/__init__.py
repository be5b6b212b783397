"""Consilia trains one model across institutions that may not move their data, and states what any record can leak.

    import consilia

    plan = consilia.load("examples/plans/heart.toml")
    result = consilia.run(plan)
    print(result.summary["accuracy"], result.summary["epsilon"])

The public names are below; anything else may change.
"""

from typing import TYPE_CHECKING, Any

from consilia.core.version import VERSION

__version__ = VERSION

__all__ = [
    "BudgetExceeded", "ConsiliaError", "DataError", "Plan", "PlanError", "ProtocolError", "RunPlan", "RunResult",
    "StoreError", "account", "calibrate", "check", "load", "resume", "run", "write_report",
]  # fmt: skip

if TYPE_CHECKING:
    from consilia.api import (
        BudgetExceeded,
        ConsiliaError,
        DataError,
        Plan,
        PlanError,
        ProtocolError,
        RunPlan,
        RunResult,
        StoreError,
        account,
        calibrate,
        check,
        load,
        resume,
        run,
        write_report,
    )


def __getattr__(name: str) -> Any:
    """Import the public functions when first used, so that `import consilia` costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module 'consilia' has no attribute {name!r}")
    from consilia import api  # noqa: PLC0415  (lazy on purpose)

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted(__all__)
