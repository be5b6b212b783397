from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilia.core.errors import StoreError
from consilia.dp.chain import Entry, Kind, append, genesis, verify


def _chain(length: int = 5, population: str = "ward") -> list[Entry]:
    entries: list[Entry] = []
    for index in range(length):
        kind = Kind.ALLOT if index == 0 else Kind.RESERVE
        entries.append(append(entries[-1] if entries else None, kind=kind, population=population, run="run-1",
                              round=index, body={"n": index}))  # fmt: skip
    return entries


def test_a_whole_chain_gives_its_head() -> None:
    entries = _chain()
    assert verify(entries, "ward") == entries[-1].hash
    assert verify(entries, "ward", head=entries[-1].hash) == entries[-1].hash
    assert verify([], "ward") == genesis("ward") != genesis("clinic")


def test_it_survives_json() -> None:
    entries = [Entry.from_json(entry.to_json()) for entry in _chain()]
    assert verify(entries, "ward") == _chain()[-1].hash


CHANGES = [
    {"index": 9}, {"kind": Kind.CLOSE}, {"population": "clinic"}, {"run": "run-2"}, {"round": 99}, {"body": {"n": 7}},
    {"previous": "0" * 64},
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
@pytest.mark.parametrize("at", range(5))
def test_any_change_is_found_at_its_place(change: dict[str, object], at: int) -> None:
    entries = _chain()
    head = entries[-1].hash
    entries[at] = replace(entries[at], **change)  # type: ignore[arg-type]
    with pytest.raises(StoreError) as caught:
        verify(entries, "ward", head=head)
    assert f"entry {at};" in str(caught.value) or f"entry {at + 1};" in str(caught.value)


@given(st.integers(0, 4), st.integers(0, 4))
def test_moved_or_repeated_or_missing_entries_are_found(first: int, second: int) -> None:
    entries = _chain()
    head = entries[-1].hash
    missing = entries[:first] + entries[first + 1 :]
    with pytest.raises(StoreError):
        verify(missing, "ward", head=head)
    with pytest.raises(StoreError):
        verify([*entries[: first + 1], *entries[first:]], "ward", head=head)
    if first != second:
        entries[first], entries[second] = entries[second], entries[first]
        with pytest.raises(StoreError):
            verify(entries, "ward", head=head)


def test_a_cut_tail_needs_the_head_kept_elsewhere() -> None:
    entries = _chain()
    verify(entries[:-1], "ward")
    with pytest.raises(StoreError, match="entry 3"):
        verify(entries[:-1], "ward", head=entries[-1].hash)


def test_another_population_does_not_continue_a_chain() -> None:
    with pytest.raises(StoreError, match="its own last entry"):
        append(_chain()[-1], kind=Kind.CLOSE, population="clinic", run="run-1", body={})
    with pytest.raises(StoreError):
        verify(_chain(), "clinic")


@pytest.mark.parametrize("damage", [{"kind": "refund"}, {"round": "x"}, {"body": 3}])
def test_damaged_json_is_a_store_error(damage: dict[str, object]) -> None:
    value = {**_chain()[0].to_json(), **damage}
    with pytest.raises(StoreError, match="can be read"):
        Entry.from_json(value)  # type: ignore[arg-type]
    with pytest.raises(StoreError):
        Entry.from_json({})
