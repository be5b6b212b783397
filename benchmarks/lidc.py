"""LIDC ratings: does a reader call a nodule malignant? Patient-level privacy: all rows of a patient count as one."""

import csv
import gzip
import tempfile
from pathlib import Path

from benchmarks.scores import two_class
from benchmarks.study import ROOT, Case, Json, Study, by_name, column, main, run_cases, scratch, seeds, shared
from benchmarks.tables import points, provenance, share, table

PLAN, OPEN = (ROOT / "benchmarks" / "plans" / name for name in ("lidc.toml", "lidc-open.toml"))
LABELS = {"1": "benign", "2": "benign", "4": "malignant", "5": "malignant"}
# Chosen by AUC on splits of other seeds; the same at all budgets but the small ones, where smaller steps win.
SMALLER = ("training.server_learning_rate=3",)
SETTINGS: dict[str, tuple[str, ...]] = {
    "8": (), "3": (), "1": (), "0.5": SMALLER, "0.3": SMALLER, "0.1": ("training.rounds=10",),
}  # fmt: skip
TARGETS = {"none": ".92", "3": ".90"}


def source() -> Path | None:
    """Return where the annotations lie, or None."""
    return shared("lidc", "lidc_nodule_annotations.csv.gz")


def prepare(place: Path, folder: Path) -> Path:
    """Write the rows that call a nodule benign (1, 2) or malignant (4, 5); indeterminate ones (3) are left out."""
    made = folder / "lidc.csv"
    with gzip.open(place, "rt", newline="", encoding="utf-8") as found:
        rows = [row for row in csv.DictReader(found) if row["malignancy"] in LABELS]
    with made.open("w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows({**row, "malignancy": LABELS[row["malignancy"]]} for row in rows)
    return made


def cases(place: Path, small: bool) -> list[Case]:
    """Return the case without privacy and one for each budget."""
    chosen, data = seeds(1, 20, small=small), f"data.path={place}"
    short = ("training.rounds=3",) if small else ()
    return [
        Case("none", OPEN, (data, *short), chosen, {"epsilon": "none"}),
        *(
            Case(f"epsilon {e}", PLAN, (data, f"privacy.epsilon={e}", *settings, *short), chosen, {"epsilon": e})
            for e, settings in SETTINGS.items()
        ),
    ]


def measure(small: bool) -> Json:
    place = source()
    if place is None:
        raise SystemExit("lidc/lidc_nodule_annotations.csv.gz was not found: set CONSILIA_SHARED_DATA to its folder")
    with tempfile.TemporaryDirectory(dir=scratch()) as folder:
        return {"cases": run_cases(cases(prepare(place, Path(folder)), small), score=two_class)}


def section(result: Json) -> str:
    plain, rows = column(by_name(result)["none"], "auc"), []
    for case in result["cases"]:
        epsilon, training = case["labels"]["epsilon"], case["plan"]["training"]
        z, found = case["runs"][0]["noise_multiplier"], column(case, "auc")
        loss = "" if epsilon == "none" else points([a - b for a, b in zip(found, plain, strict=True)])
        rows.append(
            [
                epsilon, str(training["rounds"]), f"{training['server_learning_rate']:g}", f"{z:.1f}" if z else "-",
                share(found), f"≥ {TARGETS[epsilon]}" if epsilon in TARGETS else "", loss,
                share(column(case, "accuracy")),
            ]
        )  # fmt: skip
    n, private = len(plain), result["cases"][1]["plan"]["privacy"]
    head = ["epsilon", "rounds", "rate", "noise multiplier", "AUC", "target", "minus none, points", "accuracy"]
    return f"""## LIDC nodule ratings, one site, every patient protected

{table(head, rows)}

Each row is one reader's annotation of one nodule: malignancy 1 or 2 against 4 or 5 (3, indeterminate, is left out: 4,253
rows of 828 patients remain), from the same reader's eight other ratings and the contour's diameter and area, scaled by
public ranges. Logistic regression, one step over all patients a round, server momentum 0.9, result = mean of the second
half's models.
Unit patient: the mean gradient of all of a patient's rows is clipped to C = {private["clip_norm"]:g} and noised, so the
claim covers everything the table holds about one person; add-remove, delta {private["delta"]:g}. About a quarter of the
patients is held out; {n} random splits; ± is a 95 % interval of the mean over splits (Student's t), which share
their rows. Private steps weigh every patient alike, those without privacy every row.
The readers' ratings are correlated with their malignancy call: this is no test of reading films.

**Hyper-parameters** were chosen by AUC on five other random splits (of another script) of the same 828 patients: none of
these splits was used, but every patient was. **That tuning is not charged** to epsilon, which covers the run alone.

{provenance(result)}"""


STUDY = Study("lidc", measure, section)

if __name__ == "__main__":
    main(STUDY)
