"""`consilia export`: the model and its card, for use elsewhere."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from consilia.cli import options, output


def export(
    run: options.RunFolder,
    format: Annotated[
        Literal["safetensors", "onnx"],
        typer.Option("--format", help="safetensors, or onnx (needs the extra named onnx)."),
    ] = "safetensors",
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Where to; RUN/export when absent.")] = None,
    json: options.Json = False,
) -> None:
    """Write the model and a model card (MODEL_CARD.md) of a finished run."""
    from safetensors import SafetensorError

    from consilia.core.errors import StoreError
    from consilia.report.document import legible, read
    from consilia.report.model_card import model_card

    document = read(run)
    if document.result is None:
        raise StoreError.of(f"run {run}", needs="a finished run", got=f"one that is {document.status}",
                            hint=f"Go on with: consilia run --resume {run}")  # fmt: skip
    with legible(run):
        text = model_card(document, f"model.{format}")
    folder = out if out is not None else run / "export"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        model = (_safetensors if format == "safetensors" else _onnx)(run, folder, document.result)
        card = folder / "MODEL_CARD.md"
        card.write_text(text, encoding="utf-8")
    except (OSError, SafetensorError) as error:
        raise StoreError.of(f"folder {folder}", needs="to be writable", got=getattr(error, "strerror", None) or str(error),
                            hint="Name another with --out") from None  # fmt: skip
    if json:
        output.emit({"model": str(model), "card": str(card), "format": format})
    else:
        print(f"{model}\n{card}")


def _safetensors(run: Path, folder: Path, result: Mapping[str, Any]) -> Path:
    from safetensors.numpy import save_file

    from consilia.rounds.weights import result_parameters

    path = folder / "model.safetensors"
    save_file(result_parameters(run, result), path)
    return path


def _onnx(run: Path, folder: Path, result: Mapping[str, Any]) -> Path:
    from consilia.cli.onnx import write_onnx

    path = folder / "model.onnx"
    write_onnx(run, path, result)
    return path
