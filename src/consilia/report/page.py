"""One self-contained page: no script, no link, nothing to fetch. It reads well on a screen, in the dark and on paper."""

from importlib.resources import files
from pathlib import Path

from consilia.core.errors import StoreError
from consilia.report import card_page, sections
from consilia.report.card import build
from consilia.report.document import Document, legible, read
from consilia.report.markup import join, tag, trusted

REPORT = "report.html"
_STATUS = {
    "running": "not finished: running now, or cut off and to be resumed",  # a killed process leaves no word
    "done": "done", "stopped": "stopped early", "failed": "failed",
}  # fmt: skip


def write_report(folder: Path, out: Path | None = None) -> Path:
    """Write a run's report, into its folder when `out` names no other file, and return its place.

    Raises:
        StoreError: If the folder holds no run, or cannot be written.
    """
    document = read(folder)
    with legible(folder):
        page = render(document)
    path = out if out is not None else folder / REPORT
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise StoreError.of(f"report {path}", needs="a folder that can be written", got=error.strerror or "an error",
                            hint="Check space and permissions, or: consilia report RUN --out FILE") from None  # fmt: skip
    return path


def render(document: Document) -> str:
    """Return the page of a run."""
    card = build(document.facts, document.heads)
    name = str(document.plan.get("run", {}).get("name", document.run))
    style = trusted((files("consilia.report") / "style.css").read_text(encoding="utf-8"))
    status = _STATUS.get(document.status, document.status) + (f": {document.reason}" if document.reason else "")
    body = tag(
        "main",
        tag(
            "header",
            tag("p", "Consilia \u00b7 report of a run", class_="over"),
            tag("h1", name),
            tag("p", tag("code", document.run), " \u00b7 ", status, class_="note"),
        ),
        sections.tiles(document, card.verdict),
        card_page.banner(card),
        sections.result(document),
        card_page.section(card),
        sections.course(document),
        sections.plan(document),
        tag("footer", "Made by Consilia from the run's journal. It rests on what the sites released; ",
            "what they kept reads \u201chidden\u201d."),
    )  # fmt: skip
    head = tag(
        "head",
        trusted('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        trusted('<meta name="color-scheme" content="light dark">'),
        tag("title", f"{name} \u00b7 Consilia"),
        tag("style", style),
    )
    return "<!doctype html>\n" + join(tag("html", head, tag("body", body), lang="en")) + "\n"
