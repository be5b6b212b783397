"""A sound CSV file: what becomes of its columns."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from consilia.data.sources.csv_file import CsvSpec, read_csv

TEXT = """id,centre,patient,age,bp,cp,sick,ignored
a,North,p1,20,100,typical,yes,1
b,North,p1,50,,none,no,x
c,South,p2,95,140,strange,yes,"two, words"

d,South,p3,80,NA,typical,no,
e,South,p4, 35 ,80,none,no,
"""
NUMERIC = {"age": (20.0, 80.0), "bp": (80.0, 200.0)}
CATEGORIES = {"cp": ("typical", "none")}


def write(tmp_path: Path, content: str = TEXT) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text(content, encoding="utf-8")
    return path


def test_rows_with_a_missing_value_are_dropped(tmp_path: Path) -> None:
    spec = CsvSpec(
        "sick", ("no", "yes"), NUMERIC, CATEGORIES, id_column="id", site_column="centre", patient_column="patient"
    )
    table = read_csv(write(tmp_path), spec)
    assert table.ids.tolist() == ["a", "e"]
    assert table.columns == ("age", "bp", "cp=typical", "cp=none")
    np.testing.assert_allclose(table.features, [[-1, -2 / 3, 1, 0], [-0.5, -1, 0, 1]], rtol=1e-6)
    assert table.features.dtype == np.float32
    assert table.labels.tolist() == [1, 0]
    assert table.classes == ("no", "yes")
    assert table.sites is not None
    assert table.sites.tolist() == ["North", "South"]
    assert table.patients is not None
    assert table.patients.tolist() == ["p1", "p4"]
    assert table.official_test is None
    assert table.notes == ("3 of 5 rows have a missing value and are left out",)


def test_missing_values_are_indicated(tmp_path: Path) -> None:
    table = read_csv(write(tmp_path), CsvSpec("sick", None, NUMERIC, CATEGORIES, missing="indicate"))
    assert table.columns == ("age", "age missing", "bp", "bp missing", "cp=typical", "cp=none", "cp missing")
    expected: list[list[float]] = [
        [-1, 0, -2 / 3, 0, 1, 0, 0],
        [0, 0, 0, 1, 0, 1, 0],
        [1, 0, 0, 0, 0, 0, 1],  # 95 years are clipped to 80
        [1, 0, 0, 1, 1, 0, 0],
        [-0.5, 0, -1, 0, 0, 1, 0],
    ]
    np.testing.assert_allclose(table.features, expected, rtol=1e-6, atol=1e-7)
    assert table.classes == ("no", "yes")  # found in the file, sorted
    assert table.labels.tolist() == [1, 0, 1, 0, 0]
    assert table.ids.tolist() == ["1", "2", "3", "4", "5"]
    assert table.notes == ()


def test_the_width_does_not_depend_on_the_rows(tmp_path: Path) -> None:
    # Sites hold different rows and must still agree on the model's input.
    spec = CsvSpec("sick", ("no", "yes"), NUMERIC, CATEGORIES, missing="indicate")
    one = read_csv(write(tmp_path), spec)
    other = read_csv(write(tmp_path, "age,bp,cp,sick\n50,100,none,no\n60,110,none,yes\n"), spec)
    assert one.columns == other.columns


def test_a_question_mark_on_the_list_is_a_value(tmp_path: Path) -> None:
    path = write(tmp_path, "cp,sick\n?,no\nnone,yes\n")
    table = read_csv(path, CsvSpec("sick", ("no", "yes"), categories={"cp": ("none", "?")}))
    assert table.features.tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_line_ends_byte_order_mark_and_gzip(tmp_path: Path, ending: str) -> None:
    spec = CsvSpec("sick", ("no", "yes"), NUMERIC, CATEGORIES, missing="indicate", id_column="id")
    expected = read_csv(write(tmp_path), spec).fingerprint()
    raw = b"\xef\xbb\xbf" + TEXT.replace("\n", ending).encode()
    (tmp_path / "other.csv").write_bytes(raw)
    (tmp_path / "other.csv.gz").write_bytes(gzip.compress(raw))
    assert read_csv(tmp_path / "other.csv", spec).fingerprint() == expected
    assert read_csv(tmp_path / "other.csv.gz", spec).fingerprint() == expected


def test_more_rows_than_one_chunk(tmp_path: Path) -> None:
    rows = 10_000
    lines = [f"{k % 61 + 20},{'no' if k % 3 else 'yes'}" for k in range(rows)]
    lines[5000] = ",no"  # one blank in the middle must not shift its neighbours
    table = read_csv(write(tmp_path, "age,sick\n" + "\n".join(lines)), CsvSpec("sick", None, {"age": (20, 80)}))
    assert len(table) == rows - 1
    kept = np.delete(np.arange(rows), 5000)
    np.testing.assert_allclose(table.features[:, 0], (kept % 61) / 30 - 1, atol=1e-6)
    assert table.ids.tolist() == [str(k + 1) for k in kept]
    assert table.labels.tolist() == [int(k % 3 == 0) for k in kept]
