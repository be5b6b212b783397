"""The model card in Markdown: what the model is, how well it does, and what it may leak."""

from collections.abc import Sequence

from consilia.plan.run_plan import ADVERSARIES
from consilia.report import plan_text
from consilia.report.card import Card, build
from consilia.report.document import Document
from consilia.report.numbers import plain, share
from consilia.report.sections import unseen


def model_card(document: Document, file: str) -> str:
    """Return the card of a finished run.

    Args:
        document: The run.
        file: Name of the model's file beside the card.
    """
    card = build(document.facts, document.heads)
    name = document.plan["run"]["name"]
    parts = [
        f"# {_text(name)}",
        f"A `{document.plan['model']['name']}` model trained by federated learning over "
        f"{len(document.facts['sites'])} sites with Consilia. Run `{document.run}`, weights in `{file}`.",
        "## Results on held-out rows",
        *_results(document),
        "## Privacy",
        f"**{card.headline}.** {card.statement}",
        *_privacy(card),
        "## Plan",
        "Without what was left at its default.",
        f"```toml\n{plan_text.text(document.plan).replace('```', '')}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def _results(document: Document) -> list[str]:
    last, hidden = document.last_scored, unseen(document)
    rows = []
    for site in document.facts["sites"]:
        score = document.score(site["name"]) or {}
        numbers = plain(score.get("n"), hidden), share(score.get("accuracy"), hidden)
        rows.append((site["name"], plain(site["count"]), *numbers))
    rows.append(("all rows", "", "", share(last.get("accuracy"))))
    rows.append(("mean over sites", "", "", share(last.get("accuracy_mean_over_sites"), hidden)))
    trained = "patients" if document.facts["unit"] == "patient" else "training rows"
    return [_table(("site", f"{trained} (registered)", "test rows", "accuracy"), rows)]


def _privacy(card: Card) -> list[str]:
    parts = []
    for group in card.groups:
        lines = [
            f"- {row.label}: **{_text(row.value)}**" + (f" ({_text(row.note)})" if row.note else "")
            for row in group.rows
        ]
        parts += [f"### {group.title}", "\n".join(lines)]
    if card.verdict == "private":
        table = [(", ".join(row.sites), str(row.turns), *row.epsilon) for row in card.bounds]
        parts += ["### Epsilon by site and adversary", _table(("site", "turns", *ADVERSARIES), table)]
    for title, points in (("Warnings", card.warnings), ("Not covered", card.not_covered)):
        if points:
            parts += [f"### {title}", "\n".join(f"- {_text(point)}" for point in points)]
    if card.heads:
        parts += ["### Heads of the ledgers", "\n".join(f"- {_text(site)}: `{head}`" for site, head in card.heads)]
    return parts


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(_text(cell) for cell in line) + " |" for line in lines)


def _text(text: str) -> str:
    # Markdown passes HTML through, and a bar ends a cell.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|").replace("\n", " ")
