"""Adult, five sites, three a round: accuracy without privacy and at epsilon 5 and 1 over the whole run."""

from benchmarks import adult_published
from benchmarks.study import PLANS, Case, Json, Study, by_name, column, main, run_cases, seeds
from benchmarks.tables import percent, provenance, table

TARGETS = {"none": "84.6", "5": "84.4", "1": "84.0"}
MODELS = ("logistic", "mlp")
# Chosen on the official training rows alone (a quarter of them held out): adult_tuning.py.
OPEN = {
    "logistic": ("training.rounds=600", "training.server_learning_rate=5"),
    "mlp": ("training.rounds=600", "training.server_learning_rate=0.5"),
}
PRIVATE = {
    "logistic": ("training.rounds=200", "training.server_learning_rate=1"),
    "mlp": ("training.rounds=200", "training.server_learning_rate=0.5"),
}


def cases(small: bool) -> list[Case]:
    """Return every model without privacy and at both budgets."""
    chosen, found = seeds(1, 3, small=small), []
    short = ("training.rounds=4", "data.train_rows=1000") if small else ()
    for model in MODELS:
        common = (f"model.name={model}", "evaluation.every=1000000")
        labels = {"model": model, "epsilon": "none"}
        found.append(Case(f"{model}, none", PLANS / "adult-open.toml", (*common, *OPEN[model], *short), chosen, labels))
        for epsilon in ("5", "1"):
            changes = (*common, *PRIVATE[model], f"privacy.epsilon={epsilon}", *short)
            labels = {"model": model, "epsilon": epsilon}
            found.append(Case(f"{model}, epsilon {epsilon}", PLANS / "adult.toml", changes, chosen, labels))
    return found


def measure(small: bool) -> Json:
    return {"cases": run_cases(cases(small)), "published": adult_published.measure(small)}


def section(result: Json) -> str:
    named, rows = by_name(result), []
    for model in MODELS:
        for epsilon, target in TARGETS.items():
            case = named[f"{model}, none" if epsilon == "none" else f"{model}, epsilon {epsilon}"]
            training = case["plan"]["training"]
            z = case["runs"][0]["noise_multiplier"]
            rows.append(
                [
                    "logistic regression" if model == "logistic" else "MLP, 64 hidden", epsilon, str(training["rounds"]),
                    f"{training['server_learning_rate']:g}", f"{z:.2f}" if z else "-", percent(column(case, "accuracy")),
                    f"≥ {target} with the better model",
                ]
            )  # fmt: skip
    head = ["model", "epsilon, whole run", "rounds", "server rate", "noise multiplier", "test accuracy, %", "target"]
    n = len(result["cases"][0]["seeds"])
    return f"""## Adult, five sites, three asked a round

{table(head, rows)}

Official split (32,561 training rows in five iid shares, all 16,281 test rows), {n} seeds, ± = 95 % interval of the mean
(Student's t over {n} runs, so wide). One full-batch gradient a site and round, C = 1, server momentum 0.9, result = mean
of the second half's models. Private rows: unit record, add-remove, delta 1e-5, every site noises for itself; the public
schedule asks each site in three fifths of the rounds, exactly those are charged, and nothing is amplified. Settings
were chosen on a held-out quarter of the **training** rows (not charged to epsilon; table below). Test accuracy of a few
trial runs at nearby settings had been seen before, while timing the code; no setting was chosen by it.

{adult_published.section(result["published"])}

{provenance(result)}"""


STUDY = Study("adult", measure, section)

if __name__ == "__main__":
    main(STUDY)
