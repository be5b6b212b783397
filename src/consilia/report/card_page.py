"""The privacy card as markup."""

from collections.abc import Sequence

from consilia.plan.run_plan import ADVERSARIES
from consilia.report.card import Card
from consilia.report.markup import Html, join, tag
from consilia.report.mechanism import Group
from consilia.report.sections import table

_MARK = {"private": "Private", "open": "No claim", "not-private": "Not private"}


def banner(card: Card) -> Html:
    """The claim, or that there is none, where nobody can miss it."""
    words = card.against if card.verdict == "private" else card.statement
    return tag("p", tag("strong", card.headline), " ", words, class_=f"banner {card.verdict}")


def section(card: Card) -> Html:
    """The whole card: on a page of its own when printed, to be signed."""
    return tag(
        "section",
        tag("h2", "Privacy card", tag("span", _MARK[card.verdict], class_=f"mark {card.verdict}")),
        tag("p", tag("strong", card.headline), " ", card.statement, class_=f"banner {card.verdict}"),
        _list("Warnings", [tag("li", text) for text in card.warnings], "warnings"),
        tag("div", *(_group(group) for group in card.groups), class_="groups"),
        _bounds(card),
        _heads(card),
        _list("Not covered", [_point(text) for text in card.not_covered], "limits"),
        class_=f"card {card.verdict}",
    )


def _group(group: Group) -> Html:
    rows = [
        tag("div", tag("dt", row.label), tag("dd", row.value, *([tag("small", row.note)] if row.note else [])))
        for row in group.rows
    ]
    return tag("div", tag("h3", group.title), tag("dl", *rows))


def _bounds(card: Card) -> Html:
    if card.verdict != "private":
        return Html("")
    head = ("Site", "Turns", *ADVERSARIES)
    rows = [(_names(row.sites), str(row.turns), *row.epsilon) for row in card.bounds]
    notes = [tag("li", tag("b", who), f": {words}") for who, words in card.adversaries]
    return join(
        tag("h3", "Epsilon by site and adversary"),
        table(head, rows),
        tag("p", "\u201cnone\u201d: no finite bound holds against that adversary.", class_="note"),
        tag("ul", *notes, class_="note"),
    )


def _names(sites: tuple[str, ...]) -> str:
    return ", ".join(sites[:6]) + (f" and {len(sites) - 6} more" if len(sites) > 6 else "")


def _heads(card: Card) -> Html:
    if not card.heads:
        return join(
            tag("h3", "Heads of the ledgers"),
            tag("p", "None: nothing was charged, or the run has not ended.", class_="note"),
        )
    rows = [tag("div", tag("dt", site), tag("dd", tag("code", head))) for site, head in card.heads]
    note = (
        "A site's ledger must still hold this entry: consilia ledger verify --site NAME --head HASH. "
        "If not, its end was cut or its disk rolled back."
    )
    return join(tag("h3", "Heads of the ledgers"), tag("dl", *rows, class_="heads"), tag("p", note, class_="note"))


def _list(title: str, points: Sequence[Html], kind: str) -> Html:
    if not points:
        return Html("")
    return tag("div", tag("h3", title), tag("ul", *points), class_=kind)


def _point(text: str) -> Html:
    topic, colon, rest = text.partition(": ")
    return tag("li", tag("b", topic + ":"), " ", rest) if colon else tag("li", text)
