"""Where a simulated run computes: in its own process, or on a Ray cluster."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from consilia.core.errors import PlanError
from consilia.federation.simulation import Prepared, many_small
from consilia.transport.spread import Workers

PROCESS, RAY = "process", "ray"


def require(engine: str) -> None:
    """Refuse an engine that does not exist or is not installed, before anything is read or begun.

    Raises:
        PlanError: Saying what to install.
    """
    if engine not in (PROCESS, RAY):
        raise PlanError.of("engine", needs=f"{PROCESS} or {RAY}", got=repr(engine), hint=f"Leave it out for {PROCESS}")
    if engine == RAY and find_spec("ray") is None:
        raise PlanError.of("engine ray", needs="the package ray", got="none", hint='Run: pip install "consilia[ray]"')


@contextmanager
def workers(engine: str, prepared: Prepared) -> Iterator[Workers | None]:
    """Have what computes the run's tasks while this is open; None where its own process does.

    Raises:
        TransportError: If the cluster cannot be reached or started, or has no worker that fits.
    """
    if engine == PROCESS:
        yield None
        return
    from consilia.federation.onray.cluster import cluster  # noqa: PLC0415  (an extra, and slow to load)
    from consilia.federation.onray.crew import Crew  # noqa: PLC0415

    with cluster() as own:
        crew = Crew(prepared, together=many_small(prepared), own=own)
        try:
            yield crew
        finally:
            crew.close()
