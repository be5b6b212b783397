"""Fenced blocks of a Markdown page, and what the comment before each says about it.

<!-- file: NAME -->       the block is written to this file
<!-- output -->           the block is what the Python block before it prints
<!-- noisy -->            numbers differ from run to run: they are not compared (also: <!-- noisy output -->)
<!-- not run: REASON -->  the block is only read
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = re.compile(r"^(?P<tick>```+)(?P<language>\w*)\s*$")
_NOTE = re.compile(r"^<!--\s*(?P<note>.*?)\s*-->$")
_KNOWN = re.compile(r"(file: \S+|output|noisy|noisy output|not run: .+|generated .*|)")


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
        line: Of its opening fence, from 1.
        language: Word after the fence.
        text: The lines inside, each with its newline.
        note: The comment right before it.
    """

    line: int
    language: str
    text: str
    note: str


@dataclass(frozen=True)
class Command:
    """A command of a console block and what it prints."""

    line: int
    text: str
    expected: str


def blocks(page: str) -> Iterator[Block]:
    """Yield the blocks in order.

    Raises:
        ValueError: If a fence is left open or a note has no meaning.
    """
    lines = page.splitlines()
    at = 0
    while at < len(lines):
        opening = _FENCE.match(lines[at])
        if opening is None:
            at += 1
            continue
        before = _NOTE.match(lines[at - 1]) if at else None
        note = before["note"] if before is not None else ""
        if _KNOWN.fullmatch(note) is None:
            raise ValueError(f"line {at}: unknown note {note!r}")
        end = next((k for k in range(at + 1, len(lines)) if lines[k].rstrip() == opening["tick"]), None)
        if end is None:
            raise ValueError(f"line {at + 1}: the block is never closed")
        yield Block(at + 1, opening["language"], "".join(f"{line}\n" for line in lines[at + 1 : end]), note)
        at = end + 1


def commands(block: Block) -> Iterator[Command]:
    """Yield a console block's commands: lines that begin with "$ ", continued where they end with a backslash."""
    text, expected, line = "", "", 0
    for number, row in enumerate(block.text.splitlines(), block.line + 1):
        if text.endswith("\\"):
            text = text[:-1].rstrip() + " " + row.strip()
        elif row.startswith("$ "):
            if text:
                yield Command(line, text, expected)
            text, expected, line = row[2:].strip(), "", number
        else:
            expected += f"{row}\n"
    if text:
        yield Command(line, text, expected)
