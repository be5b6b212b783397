"""The page: self-contained, escaped, accessible, and never blank where something is hidden."""

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from consilia.report.document import Document
from consilia.report.page import render

Make = Callable[..., Document]
VOID = {"meta"}


class Outline(HTMLParser):
    """Tags in order, ids, and whether every element is closed where it was opened."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, key, value or "") for key, value in attrs]
        self.ids += [value or "" for key, value in attrs if key == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, key, value or "") for key, value in attrs]
        self.ids += [value or "" for key, value in attrs if key == "id"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def words(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", re.sub(r"<style>.*?</style>", "", page, flags=re.S)))


def test_nothing_is_fetched_and_no_script_runs(make_document: Make) -> None:
    page = render(make_document())
    outline = Outline(page)
    assert not outline.open
    assert not {"script", "link", "img", "iframe", "object", "base", "a"} & set(outline.tags)
    assert "http" not in page
    assert "@import" not in page
    for _, key, value in outline.attributes:
        assert not key.startswith("on")
        if key in ("src", "href"):
            assert value.startswith("#")
    assert not re.search(r"url\((?!#)", page)


def test_ids_are_unique_and_references_resolve(make_document: Make) -> None:
    page = render(make_document())
    ids = Outline(page).ids
    assert len(ids) == len(set(ids))
    wanted = set(re.findall(r"url\(#([^)]+)\)", page)) | set(re.findall(r'href="#([^"]+)"', page))
    assert wanted <= set(ids)


def test_every_figure_has_words(make_document: Make) -> None:
    page = render(make_document())
    figures = re.findall(r'<svg role="img" aria-labelledby="(\S+) (\S+)".*?</svg>', page, flags=re.S)
    assert len(figures) == page.count("<svg") == 8
    for title, description in figures:
        assert re.search(rf'<title id="{title}">[^<]+</title>', page)
        assert re.search(rf'<desc id="{description}">[^<]*\d[^<]*</desc>', page)


def test_the_theme_colours_every_figure(make_document: Make) -> None:
    page = render(make_document())
    drawings = "".join(re.findall(r"<svg.*?</svg>", page, flags=re.S))
    assert "var(--accent)" in drawings
    assert not re.findall(r"#[0-9a-f]{6}", drawings)


def test_same_records_same_page(make_document: Make) -> None:
    assert render(make_document()) == render(make_document())


def test_hostile_names_and_reasons_stay_text(make_document: Make) -> None:
    evil = "<script>alert(1)</script>\"'&"
    document = make_document()
    plan = {**document.plan, "run": {**document.plan["run"], "name": evil}}
    facts: Any = {**document.facts, "delta_reason": evil, "population": evil, "warnings": [evil]}
    facts["sites"] = [
        {**site, "name": evil} if site["name"] == "Switzerland" else site for site in document.facts["sites"]
    ]
    records = [
        {
            **record, "reason": record["reason"] and evil, "dropped": {evil: evil},
            "per_site": {evil if site == "Switzerland" else site: score for site, score in record["per_site"].items()},
            "update_norms": {evil: 1.0, "Bern": 2.0}, "cosine": {"mean": 0.5, "pairs": {f"{evil}|Bern": 0.5}},
        }
        for record in document.records
    ]  # fmt: skip
    result = {**(document.result or {}), "ledger_heads": {evil: evil}}
    page = render(replace(document, run=evil, reason=evil, plan=plan, facts=facts, records=records, result=result))
    outline = Outline(page)
    assert not outline.open
    assert "script" not in outline.tags
    assert page.count("&lt;script&gt;") >= 10


def test_hidden_is_written_and_never_blank(make_document: Make) -> None:
    document = make_document(hidden=True, metrics="hidden", noise="server", against="world")
    page = render(document)
    text = words(page)
    assert "no metric of held-out rows leaves a site" in text
    assert "raw norms and directions of single sites would void the claim" in text
    assert text.count("hidden") >= 15  # three columns of four sites among them
    assert not re.search(r"<(td|dd|th)[^>]*></\1>", page)
    assert "None" not in text.replace("None:", "")
    assert "nan" not in text.lower().split()


@pytest.mark.parametrize("finished", [True, False])
def test_a_run_in_any_state_has_a_page(make_document: Make, finished: bool) -> None:
    document = make_document(finished=finished)
    text = words(render(document))
    assert ("done" if finished else "not finished: running now, or cut off and to be resumed") in text
    begun = replace(document, records=[], result=None)
    assert "No round has been evaluated yet." in words(render(begun))
    first = replace(document, records=document.records[:1], result=None)
    assert "1 of 40" in words(render(first))


def test_reproducible_mode_is_red_and_says_so(make_document: Make) -> None:
    page = render(make_document(reproducible=True, epsilon=None))
    assert page.count('class="banner not-private"') == 2
    assert "This run is not private" in words(page)
    assert "differentially private" not in words(page)
    assert "Epsilon by site" not in words(page)


def test_reasons_of_lost_turns(make_document: Make) -> None:
    text = words(render(make_document()))
    assert "2 of 4 answers; quorum 3 2 7–8" in text
    assert "Switzerland late 2 7, 20" in text


def test_many_sites_and_rounds_stay_small(make_document: Make) -> None:
    document = make_document()
    names = [f"site-{number:03}" for number in range(300)]
    facts: Any = {**document.facts, "sites": [{**document.facts["sites"][0], "name": name} for name in names]}
    records = []
    for number in range(1, 2001):
        score = {name: {"n": 10, "accuracy": 0.5 + index / 1000, "loss": 1.0} for index, name in enumerate(names[:20])}
        records.append({**document.records[-1], "round": number, "per_site": score, "asked": names[:20], "answered": names[:20],
                        "update_norms": dict.fromkeys(names[:20], 1.0)})  # fmt: skip
    per_site = {name: {"n": 10, "accuracy": index / 300, "loss": 1.0} for index, name in enumerate(names)}
    page = render(
        replace(document, facts=facts, records=records, result={**(document.result or {}), "per_site": per_site})
    )
    assert len(page) < 2_000_000
    assert "and 240 more" in page
