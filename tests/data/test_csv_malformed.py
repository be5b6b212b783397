"""What hospitals really hand in: each file gets a message that says what to do, and none quotes a patient's cell."""

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilia.core.errors import DataError, PlanError
from consilia.data.sources.csv_file import CsvSpec, read_csv

HEADER = "id,site,patient,age,cp,sick"
ROWS = ["r1,A,p1,50,typical,no", "r2,A,p2,61,none,yes", "r3,B,p3,72,typical,yes", "r4,B,p4,40,none,no"]
SPEC = CsvSpec(
    label="sick",
    classes=("no", "yes"),
    numeric={"age": (20, 80)},
    categories={"cp": ("typical", "none")},
    id_column="id",
    site_column="site",
    patient_column="patient",
    known_sites=("A", "B"),
)


def text(*rows: str, header: str = HEADER) -> bytes:
    return ("\n".join([header, *(rows or ROWS)]) + "\n").encode()


def refused(path: Path, spec: CsvSpec = SPEC) -> str:
    with pytest.raises(DataError) as caught:
        read_csv(path, spec)
    return str(caught.value)


def refused_bytes(tmp_path: Path, content: bytes, spec: CsvSpec = SPEC) -> str:
    path = tmp_path / "data.csv"
    path.write_bytes(content)
    return refused(path, spec)


def test_the_sound_file_is_read(tmp_path: Path) -> None:
    # Every test below spoils this file in one way: were it refused itself, they would all pass for nothing.
    path = tmp_path / "data.csv"
    path.write_bytes(text())
    assert len(read_csv(path, SPEC)) == 4


SPOILT: list[tuple[str, bytes, str]] = [
    ("empty", b"", "needs a file with content; got an empty file"),
    ("blank lines", b"\n\n", "needs a header line; got no line"),
    ("header only", text("").rstrip() + b"\n", "needs rows of data; got a header line only"),
    ("missing column", text(header="id,site,patient,years,cp,sick"), "needs a column 'age'; got a header line of 6"),
    ("close column", text(header="id,site,patient,AGES,cp,sick"), "Is it the column 'AGES'?"),
    ("semicolons", text().replace(b",", b";"), "Cells must be separated by commas"),
    ("same header", text(header="id,site,patient,age,cp,age"), "got the same name in columns 4 and 6"),
    ("word as number", text(*ROWS, "r5,A,p5,elderly,none,no"), "numbers in column 'age'; got text in line 6"),
    ("decimal comma", text(*ROWS, 'r5,A,p5,"50,5",none,no'), "numbers in column 'age'; got text in line 6"),
    ("underscore", text(*ROWS, "r5,A,p5,5_0,none,no"), "numbers in column 'age'; got text in line 6"),
    ("infinite", text(*ROWS, "r5,A,p5,inf,none,no"), "finite numbers in column 'age'; got NaN or infinity in line 6"),
    ("overflow", text(*ROWS, "r5,A,p5,1e999,none,no"), "finite numbers in column 'age'; got NaN or infinity in line 6"),
    ("nan", text(*ROWS, "r5,A,p5,NaN,none,no"), "finite numbers in column 'age'; got NaN or infinity in line 6"),
    ("same id", text(*ROWS, ROWS[0]), "different ids in column 'id'; got a repeated one in line 6"),
    ("blank id", text(*ROWS, ",A,p5,50,none,no"), "in every cell of column 'id'; got a blank in line 6"),
    ("long id", text(*ROWS, "r" * 300 + ",A,p5,50,none,no"), "in every cell of column 'id'; got a longer one in line 6"),
    ("one class", text(*[row.replace("yes", "no") for row in ROWS]), "rows of at least two classes; got one class"),
    ("unknown label", text(*ROWS, "r5,A,p5,50,none,maybe"), "column 'sick'; got a value that is no class in line 6"),
    ("no label", text(*ROWS, "r5,A,p5,50,none,"), "a class in every cell of column 'sick'; got a blank in line 6"),
    ("unknown site", text(*ROWS, "r5,Atlantis,p5,50,none,no"), "known sites in column 'site'; got an unknown one in line 6"),
    ("blank site", text(*ROWS, "r5,,p5,50,none,no"), "in every cell of column 'site'; got a blank in line 6"),
    ("blank patient", text(*ROWS, "r5,A,,50,none,no"), "in every cell of column 'patient'; got a blank in line 6"),
    ("huge field", text(*ROWS, f"r5,A,p5,50,{'x' * (128 * 1024 + 1)},no"), "needs well-formed CSV; got field larger than"),
    ("latin-1", text(*ROWS) + "r5,A,Müller,50,none,no\n".encode("latin-1"), "UTF-8; got bytes of another encoding in line 6"),
    ("utf-16", text().decode().encode("utf-16"), "UTF-8; got bytes of another encoding in line 1"),
    ("NUL", text(*ROWS) + b"r5,A,p5,50,no\0ne,no\n", "needs text; got a NUL byte in line 6"),
    ("too few cells", text(*ROWS, "r5,A,p5,50"), "needs 6 cells in every line; got fewer in line 6"),
    ("too many cells", text(*ROWS, "r5,A,p5,50,none,no,and"), "needs 6 cells in every line; got more in line 6"),
    ("open quote", text(*ROWS, 'r5,A,p5,50,"none,no'), "needs well-formed CSV; got unexpected end of data in line 6"),
    ("all missing", text(*[row.replace("typical", "?").replace("none", "?") for row in ROWS]), "got none among 4"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "says"), [case[1:] for case in SPOILT], ids=[case[0] for case in SPOILT])
def test_a_spoilt_file_is_refused_in_words(tmp_path: Path, content: bytes, says: str) -> None:
    message = refused_bytes(tmp_path, content)
    assert says in message
    assert message.startswith("data file '")
    for cell in ("Atlantis", "maybe", "Müller", "M\\xfc", "elderly", "50,5", "xxx", "rrrr", "r1"):
        assert cell not in message.replace(str(tmp_path), "")


def test_missing_file(tmp_path: Path) -> None:
    assert "needs an existing file; got none at this path" in refused(tmp_path / "absent.csv")


def test_directory(tmp_path: Path) -> None:
    assert "needs a file; got a directory" in refused(tmp_path)


def test_a_file_taken_for_a_folder(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_bytes(text())
    assert "needs an existing file" in refused(tmp_path / "data.csv" / "deeper.csv")


def test_a_nul_in_the_path() -> None:
    assert "needs a readable file" in refused(Path("data\0.csv"))


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    assert "needs a regular file; got a pipe" in refused(tmp_path / "pipe.csv")


def test_unreadable_file(unprivileged: Path) -> None:
    path = unprivileged / "data.csv"
    path.write_bytes(text())
    path.chmod(0)
    assert "needs a readable file; got Permission denied" in refused(path)


def test_damaged_gzip(tmp_path: Path) -> None:
    path = tmp_path / "data.csv.gz"
    whole = gzip.compress(text())
    for damaged in (whole[:-10], whole[:20] + b"\xff" * 20 + whole[40:], text()):
        path.write_bytes(damaged)
        assert "needs a whole gzip file; got damaged data" in refused(path)


def test_a_line_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consilia.data.sources.csv_lines.LONGEST_LINE", 2**20)
    assert "needs lines of at most 1 MiB; got more in line 6" in refused_bytes(tmp_path, text(*ROWS) + b"," * 2**20)


def test_a_site_name_cannot_leave_its_folder(tmp_path: Path) -> None:
    spec = CsvSpec("sick", ("no", "yes"), {"age": (20, 80)}, site_column="site")
    for name in ("../../etc/passwd", ".hidden", "a/b", "A" * 65):
        message = refused_bytes(tmp_path, text(*ROWS, f"r5,{name},p5,50,none,no"), spec)
        assert "sites named with A-Z, a-z, 0-9" in message
        assert name not in message


def test_without_a_header_line_no_patient_is_quoted(tmp_path: Path) -> None:
    message = refused_bytes(tmp_path, b"Anna Muster,1961,0.5,0.5,yes\nBert Muster,1971,0.5,1.5,no\n")
    assert "needs different names in the header line; got the same name in columns 3 and 4" in message
    assert message.count("needs a column ") == 6
    for cell in ("Muster", "1961", "0.5"):
        assert cell not in message


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    bad = ["r1,A,p9,old,none,no", "r6,C,p6,inf,none,perhaps", "r7,A", "r8,A,,50,none,no"]
    path = tmp_path / "data.csv"
    path.write_bytes(text(*ROWS, *bad) + b"r9,A,\xff,50,none,no\n")
    with pytest.raises(DataError) as caught:
        read_csv(path, SPEC)
    lines = str(caught.value).splitlines()
    assert len(lines) == len(caught.value.problems) == 8
    for fault in ("text in line 6", "repeated one in line 6", "infinity in line 7", "unknown one in line 7",
                  "no class in line 7", "fewer in line 8", "blank in line 9", "encoding in line 10"):  # fmt: skip
        assert sum(fault in line for line in lines) == 1, fault


def test_many_equal_faults_make_one_short_message(tmp_path: Path) -> None:
    rows = [f"r{k},A,p{k},old,none,{'yes' if k % 2 else 'no'}" for k in range(10_000)]
    message = refused_bytes(tmp_path, text(*rows))
    assert message.splitlines() == [message]
    assert "text in lines 2, 3, 4, 5, 6 and 9995 more" in message


def test_too_many_classes(tmp_path: Path) -> None:
    spec = CsvSpec(label="id", numeric={"age": (20, 80)})
    rows = [f"r{k},A,p,50,none,no" for k in range(1500)]
    assert "more than 1000 different values" in refused_bytes(tmp_path, text(*rows), spec)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: CsvSpec(label="y"), "needs at least one column"),
        (lambda: CsvSpec(label="y", numeric={"y": (0, 1)}), "needs a column that is no feature"),
        (lambda: CsvSpec(label="y", numeric={"a": (1, 1)}), "needs a finite range"),
        (lambda: CsvSpec(label="y", numeric={"a": (0, float("inf"))}), "needs a finite range"),
        (lambda: CsvSpec(label="y", numeric={"a": (0, 1)}, categories={"a": ["x"]}), "needs one meaning"),
        (lambda: CsvSpec(label="y", categories={"a": ["x", "x"]}), "needs different values"),
        (lambda: CsvSpec(label="y", categories={"a": []}), "needs at least 1 values"),
        (lambda: CsvSpec(label="y", classes=["no"], numeric={"a": (0, 1)}), "needs at least 2 values"),
    ],
)
def test_a_contradictory_spec(make: Callable[[], CsvSpec], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        make()


@given(content=st.binary(max_size=200), place=st.integers(0, 120))
def test_any_bytes_give_a_table_or_a_data_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, place: int
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "data.csv"
    whole = text()
    path.write_bytes(whole[:place] + content + whole[place:])
    try:
        table = read_csv(path, SPEC)
    except DataError as error:
        assert error.problems  # noqa: PT017  (either outcome is right)
    else:
        assert len(table) >= 2


@pytest.mark.parametrize("mark", ["NA", "n/a", " NULL ", "?", "NaN", "None"])
def test_rows_without_a_patient_are_not_one_patient(tmp_path: Path, mark: str) -> None:
    (tmp_path / "t.csv").write_text(f"patient,age,sick\np1,50,no\n{mark},60,yes\nNAOMI,61,yes\n{mark},62,no\n")
    spec = CsvSpec("sick", ("no", "yes"), {"age": (0.0, 100.0)}, {}, patient_column="patient")
    with pytest.raises(DataError, match=r"a mark for no value in lines? 3") as caught:
        read_csv(tmp_path / "t.csv", spec)
    assert len(caught.value.problems) == 1
    assert "5" in str(caught.value)
