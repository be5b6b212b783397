"""The report's sections, from a document to markup."""

from collections.abc import Sequence

from consilia.report import figures, history, plan_text
from consilia.report.document import Document
from consilia.report.markup import Html, join, tag
from consilia.report.numbers import HIDDEN, HIDDEN_BY_SUM, bound, counted, duration, plain, share, size

MAX_ROWS = 60


def tiles(document: Document, verdict: str) -> Html:
    """The five figures that a reader looks for first."""
    facts, last, records = document.facts, document.last_scored, document.records
    skipped = sum(record.get("status") == "skipped" for record in records)
    variance = last.get("accuracy_variance")
    spread = (
        f"\u00b1 {100 * variance**0.5:.1f} points between sites"
        if isinstance(variance, int | float)
        else f"between sites: {HIDDEN}"
    )
    mean = f"mean over sites {share(last.get('accuracy_mean_over_sites'))}, {spread}"
    if facts["secure"] is not None:
        mean = f"of all held-out rows; single sites' are {HIDDEN_BY_SUM}"
    if verdict == "private":
        epsilon, note = bound(facts["epsilon"]), f"delta {bound(facts['delta'], 6)}, against {facts['against']}"
    else:
        epsilon, note = "none", "not private" if verdict == "not-private" else "no privacy asked for"
    moved = sum(record.get("bytes_up", 0) + record.get("bytes_down", 0) for record in records)
    result = document.result or {}
    up, down = result.get("bytes_up"), result.get("bytes_down")
    if isinstance(up, int) and isinstance(down, int):
        moved = up + down
    seconds = sum(record.get("seconds", 0.0) for record in records)
    return tag(
        "dl",
        _tile("Accuracy", share(last.get("accuracy")), mean),
        _tile("Epsilon", epsilon, note, bad=verdict == "not-private"),
        _tile("Rounds", f"{len(records)} of {facts['rounds']}", f"{skipped} skipped" if skipped else "none skipped"),
        _tile("Moved", size(moved), f"{plain(facts['parameters'])} numbers an update"),
        _tile("Time", duration(seconds), counted(len(facts["sites"]), "site")),
        class_="tiles",
    )


def result(document: Document) -> Html:
    """Curves, bars and the table of sites."""
    last = document.last_scored
    names = [site["name"] for site in document.facts["sites"]]
    scores = {name: score for name in names if (score := document.score(name)) is not None}
    overall = last.get("accuracy")
    return tag(
        "section",
        tag("h2", "Result"),
        _figure("Accuracy on held-out rows",
                "By round: all held-out rows (bold)"
                + ("." if document.facts["secure"] is not None else " and each site that released its own.")
                + _ticks(document),
                figures.accuracy(document.records), _no_metrics(document)),
        tag("div",
            _figure("Each site", "Accuracy of the resulting model on each site's held-out rows.",
                    figures.site_bars(scores, overall if isinstance(overall, float) else None), _no_sites(document)),
            _figure("Spread between sites",
                    f"Standard deviation of accuracy over sites; at the end the variance is {_variance(document)}.",
                    figures.spread(document.records), _no_sites(document)),
            class_="pair"),
        _site_table(document),
    )  # fmt: skip


def course(document: Document) -> Html:
    """What happened on the way: budget, traffic, norms, directions, losses of turns."""
    records, facts = document.records, document.facts
    absent = _no_norms(document)
    budget = facts["epsilon"]
    return tag(
        "section",
        tag("h2", "The course of training"),
        tag("div",
            _figure("Epsilon spent",
                    "An upper bound after each round; the guarantee is the budget, also when training stops early.",
                    figures.epsilon(records, budget), "None is claimed."),
            _figure("Bytes moved", "Running total in both directions, models sent for evaluation included.",
                    figures.traffic(records), "Nothing was moved."),
            _figure("Length of updates", "l2 norm of each site's update as it arrived, and of the aggregate.",
                    figures.norms(records), absent),
            _figure("Agreement of sites", "Mean cosine similarity of a round's updates.",
                    figures.cosine_curve(records), absent),
            class_="pair"),
        tag("div", _pairs(document), _incidents(document), class_="pair apart"),
    )  # fmt: skip


def plan(document: Document) -> Html:
    """The plan, defaults dimmed."""
    out: list[Html] = []
    for line in plan_text.lines(document.plan):
        body = tag("b", f"[{line.section}]") if not line.key else join(line.key, " = ", line.value)
        gap = "\n" if not line.key and out else ""
        out.append(join(gap, tag("span", body, class_="default" if line.default else None), "\n"))
    return tag(
        "section",
        tag("h2", "The plan"),
        tag("p", "As agreed by all parties; values left at their default are dimmed. Digest of plan and registered numbers: ",
            tag("code", document.facts["digest"]), class_="note"),
        tag("pre", *out, class_="plan"),
    )  # fmt: skip


def _tile(label: str, value: str, note: str, *, bad: bool = False) -> Html:
    return tag("div", tag("dt", label), tag("dd", value, class_="bad" if bad else None), tag("dd", note, class_="note"))


def _figure(title: str, caption: str, drawing: Html | None, absent: str) -> Html:
    body = drawing if drawing is not None else tag("p", absent, class_="absent")
    return tag("figure", tag("figcaption", tag("b", title), " ", caption), body)


def _no_metrics(document: Document) -> str:
    if document.facts["metrics"] == HIDDEN:
        return "Hidden: by the plan no metric of held-out rows leaves a site; each site sees its own."
    return "No round has been evaluated yet."


def _no_sites(document: Document) -> str:
    if document.facts["secure"] is not None and document.facts["metrics"] != HIDDEN:
        return f"{HIDDEN_BY_SUM.capitalize()}: the coordinator learns totals over all sites; each site sees its own."
    return _no_metrics(document)


def _no_norms(document: Document) -> str:
    facts = document.facts
    if facts["secure"] is not None:
        return f"{HIDDEN_BY_SUM.capitalize()}: the coordinator sees no single update; each site sees its own."
    if facts["noise"] == "server" and facts["unit"] != "none":
        return (
            "Hidden: with the noise at the coordinator, raw norms and directions of single sites would void the claim."
        )
    return "Nothing to show: fewer than two updates a round."


def unseen(document: Document) -> str:
    """Return the word that stands where a single site's number would: what hides it."""
    return HIDDEN if document.facts["secure"] is None else HIDDEN_BY_SUM


def _ticks(document: Document) -> str:
    skipped = document.facts["metrics"] != HIDDEN and any(
        record.get("status") == "skipped" for record in document.records
    )
    return " Red ticks below: skipped rounds." if skipped else ""


def _variance(document: Document) -> str:
    value = document.last_scored.get("accuracy_variance")
    return f"{value:.2g}" if isinstance(value, int | float) else unseen(document)


def _site_table(document: Document) -> Html:
    turns, summed = history.turns(document.records), document.facts["secure"] is not None
    ages, waits = history.ages(document.records), document.facts.get("asynchronous") is None
    trained = "Patients" if document.facts["unit"] == "patient" else "Training rows"
    scores = () if summed else ("Test rows", "Accuracy", "Loss")
    aged = () if waits else ("Steps behind, mean",)
    head = ("Site", f"{trained} (registered)", "Asked" if waits else "In a sum", "Counted", *aged, *scores, "Epsilon")
    rows = []
    for site in document.facts["sites"]:
        score = document.score(site["name"]) or {}
        turn = turns.get(site["name"], history.Turns(0, 0))
        own = bound(site["epsilon"].get(document.facts["against"]))
        shown = () if summed else (plain(score.get("n")), share(score.get("accuracy")), plain(score.get("loss")))
        behind = () if waits else (f"{ages[site['name']]:.1f}" if site["name"] in ages else "",)
        rows.append((site["name"], plain(site["count"]), plain(turn.asked), plain(turn.counted), *behind, *shown, own))
    whole = "the whole schedule" if waits else "all updates that it may begin"
    note = f"Epsilon: each site's own bound against {document.facts['against']}, for {whole}."
    if summed:
        note += f" Each site's own test rows, accuracy and loss are {HIDDEN_BY_SUM}; it keeps them."
    return join(table(head, rows), tag("p", note, class_="note"))


def _pairs(document: Document) -> Html:
    drawing = figures.cosine_pairs(document.records)
    if drawing is None:
        return Html("")
    caption = "Cosine similarity of the last round's updates: 1 the same direction, below 0 against each other."
    return _figure("Pairs of sites", caption, drawing, "")


def _incidents(document: Document) -> Html:
    skipped, dropped = history.skipped(document.records), history.dropped(document.records)
    parts = [tag("h3", "Skipped rounds and dropped answers")]
    if not skipped and not dropped:
        parts.append(tag("p", "None: every site that was asked answered, and every round counted.", class_="note"))
    if skipped:
        rows = [(reason, plain(len(rounds)), history.ranges(rounds)) for reason, rounds in skipped]
        parts.append(table(("Skipped because", "Times", "Rounds"), rows, numeric=(1,)))
    if dropped:
        lost = [(site, reason, plain(len(rounds)), history.ranges(rounds)) for site, reason, rounds in dropped]
        parts.append(table(("Dropped", "Because", "Times", "Rounds"), lost, numeric=(2,)))
    return tag("div", *parts)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[int] | None = None) -> Html:
    """Return a table; all columns but the first hold numbers unless `numeric` names them."""
    right = set(range(1, len(head)) if numeric is None else numeric)

    def row(cells: Sequence[str], name: str) -> Html:
        return tag("tr", *(
            tag("th" if name == "th" or place == 0 else "td", cell, class_="number" if place in right else None,
                scope="col" if name == "th" else "row" if place == 0 else None)
            for place, cell in enumerate(cells)
        ))  # fmt: skip

    rest = len(rows) - MAX_ROWS
    body = [row(cells, "td") for cells in rows[:MAX_ROWS]]
    tail = tag("p", f"and {plain(rest)} more", class_="note") if rest > 0 else Html("")
    return join(tag("div", tag("table", tag("thead", row(head, "th")), tag("tbody", *body)), class_="scroll"), tail)
