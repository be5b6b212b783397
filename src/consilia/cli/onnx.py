"""The trained model as ONNX, where the extra is installed."""

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from consilia.core.errors import PlanError


def write_onnx(run: Path, path: Path, result: Mapping[str, Any]) -> None:
    """Build the model as the run did, load its weights and write it with a free batch dimension.

    Raises:
        PlanError: If the extra is missing, or layers stayed at the sites.
        DataError: If the run's data, which give the input's shape, cannot be read.
    """
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if missing:
        raise PlanError.of("export to ONNX", needs="the packages onnx and onnxscript", got=f"no {' and no '.join(missing)}",
                           hint="Install them: pip install 'consilia[onnx]', or export safetensors")  # fmt: skip
    import torch

    from consilia.federation.simulation import prepare
    from consilia.plan import load as plans
    from consilia.rounds.weights import result_vector
    from consilia.store.journal import Journal

    with Journal.open(run / "journal.sqlite", read_only=True) as journal:
        agreed = json.loads(journal.plan_json)
    plan = plans.from_json(agreed["plan"])
    if plan.model.local_layers != "none":
        raise PlanError.of("export to ONNX", needs="a whole model", got=f"layers kept at the sites ({plan.model.local_layers})",
                           hint="Export safetensors, the shared part")  # fmt: skip
    prepared = prepare(plan, Path(agreed["data_folder"]))
    prepared.model.set(result_vector(run, result))
    module = prepared.model.module.eval()
    example = torch.zeros(2, *next(iter(prepared.rows.values())).train.input_shape)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it misses packages that no model here needs
    # The exporter reports its steps on stdout, which is ours, and warns of its own internals.
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(action="ignore", category=FutureWarning):
        program = torch.onnx.export(
            module, (example,), dynamo=True, input_names=["features"], output_names=["scores"],
            dynamic_shapes=({0: torch.export.Dim("rows")},),
        )  # fmt: skip
    if program is None:
        raise PlanError.of("export to ONNX", needs="a model the exporter understands", got="none",
                           hint="Export safetensors")  # fmt: skip
    program.save(str(path))
