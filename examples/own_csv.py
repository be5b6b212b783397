"""From a CSV file of one's own to a private model: three made-up clinics, one file, one plan.

python examples/own_csv.py

The rows are drawn here from a formula; no person stands behind them. In a real plan the ranges, categories and counts are
public numbers that the clinics agree on beforehand, never read off the rows.
"""

import csv
import math
import random
from pathlib import Path

import consilia

PLAN = """\
[run]
name = "own-csv"

[data]
source = "csv"
path = "patients.csv"            # relative to this plan
label = "readmitted"
classes = ["no", "yes"]
id_column = "id"
patient_column = "patient"       # all rows of a patient stay on one side of the split
site_column = "clinic"
split = "hash"                   # adding a row never moves another
test_fraction = 0.25

[data.numeric]                   # public ranges, not the file's own
age = [18, 100]
pressure = [80, 200]

[data.categories]
smoker = ["no", "yes"]

[sites]
counts = { north = 2500, south = 1200, west = 700 }   # registered upper bounds on training rows
population = "readmission"       # the ledgers add up all runs under this name

[training]
algorithm = "fedsgd"
batch = "full"
rounds = 40
server_optimizer = "momentum"
server_learning_rate = 0.3

[privacy]
unit = "record"
noise = "site"
epsilon = 1.0
delta = 1e-5
clip_norm = 0.5

[evaluation]
metrics = "charged"              # counts of right and wrong held-out rows, with noise that epsilon includes
noise_multiplier = 12.0
every = 50                       # beyond the last round: only the resulting model is scored
"""


def write_patients(path: Path) -> None:
    """Draw rows for three clinics: readmission is likelier with age, pressure and smoking."""
    chance = random.Random(7)  # noqa: S311  (made-up rows, not noise)
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["id", "patient", "clinic", "age", "pressure", "smoker", "readmitted"])
        for number in range(5000):
            clinic = chance.choices(["north", "south", "west"], [5, 2, 1])[0]
            age, pressure = chance.uniform(20, 95), chance.gauss(130, 20)
            smoker = chance.random() < 0.3
            score = 0.08 * (age - 60) + 0.04 * (pressure - 130) + 1.5 * smoker - 0.4
            readmitted = chance.random() < 1 / (1 + math.exp(-score))
            patient = f"p{number // 2}"  # two stays each
            rows.writerow([number, patient, clinic, f"{age:.0f}", f"{pressure:.0f}",
                           "yes" if smoker else "no", "yes" if readmitted else "no"])  # fmt: skip


if __name__ == "__main__":
    write_patients(Path("patients.csv"))
    Path("own.toml").write_text(PLAN, encoding="utf-8")
    plan = consilia.load("own.toml")
    result = consilia.run(plan)
    print(f"accuracy {result.summary['accuracy']:.3f} (noised counts)")
    print(f"epsilon  {result.summary['epsilon']:.3f} at delta {result.summary['delta']} for one record")
