"""Adult: the clip norm C and the number of local epochs, at epsilon 5 and 1 over the whole run."""

from benchmarks.study import PLANS, Case, Json, Study, column, main, run_cases, seeds
from benchmarks.tables import percent, provenance, table

CLIPS = ("0.5", "1", "2")
EPOCHS = (2, 5)
SHAPE = (
    "model.name=mlp", "training.algorithm=fedavg", "training.batch=poisson", "training.sampling_rate=0.05",
    "training.learning_rate=0.3", "training.server_optimizer=sgd", "training.server_learning_rate=1", "training.keep=last",
    "evaluation.every=1000000",
)  # fmt: skip


def measure(small: bool) -> Json:
    short = ("training.rounds=1", "data.train_rows=1000") if small else ("training.rounds=30",)
    found = []
    for epsilon in ("5",) if small else ("5", "1"):
        for epochs in EPOCHS[:1] if small else EPOCHS:
            for clip in CLIPS:
                labels = {"epsilon": epsilon, "epochs": epochs, "clip": clip}
                own = (f"privacy.epsilon={epsilon}", f"training.local_epochs={epochs}", f"privacy.clip_norm={clip}")
                name = f"epsilon {epsilon}, {epochs} epochs, C {clip}"
                found.append(Case(name, PLANS / "adult.toml", (*SHAPE, *own, *short), seeds(1, 3, small=small), labels))
    return {"cases": run_cases(found)}


def section(result: Json) -> str:
    rows: dict[tuple[str, int], list[str]] = {}
    for case in result["cases"]:
        labels = case["labels"]
        z = case["runs"][0]["noise_multiplier"]
        row = rows.setdefault(
            (labels["epsilon"], labels["epochs"]), [labels["epsilon"], str(labels["epochs"]), f"{z:.2f}"]
        )
        row.append(percent(column(case, "accuracy")))
    plan = result["cases"][0]["plan"]
    rounds, q, rate = (plan["training"][key] for key in ("rounds", "sampling_rate", "learning_rate"))
    n = len(result["cases"][0]["seeds"])
    head = ["epsilon, whole run", "local epochs", "noise multiplier", *(f"C = {clip}, %" for clip in CLIPS)]
    return f"""## Adult: clip norm and local epochs

{table(head, list(rows.values()))}

Published (one seed, epsilon per release, batch gradients clipped): C = 2 is worse than 1; 5 local epochs lose .8 points.

MLP with 64 hidden units, five iid sites, three a round, {rounds} rounds of FedAvg; record-level DP-SGD at every site
with **Poisson** batches (q = {q}, drawn in secret at the site, so amplification is real and claimed), one
epoch = 20 steps, delta 1e-5, add-remove. The budget is fixed, so more epochs mean more noise a step. Local rate {rate},
chosen at C = 1, 2 epochs and epsilon 1 on a held-out quarter of the training rows and **kept for all cells**: at one
rate a larger C takes larger steps and adds more noise, so a row compares C at that rate, not each C at its own best.
{n} seeds, ± = 95 % interval of the mean (Student's t); the official test rows. What it shows: a small C with few epochs
is held back by short steps, a large C with many epochs by noise; between them C and epochs hardly matter, and neither
published loss comes out at its size once the whole run's budget is held fixed and examples are clipped.

{provenance(result)}"""


STUDY = Study("adult_clip", measure, section)

if __name__ == "__main__":
    main(STUDY)
