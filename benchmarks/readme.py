"""README.md from the result files: `python -m benchmarks.readme` after a study; `--check` fails when it is stale."""

import argparse
from collections.abc import Sequence

from benchmarks import (
    adult,
    adult_clip,
    adult_label,
    adult_one_site,
    adult_sizes,
    adult_stacking,
    adult_tuning,
    asynchronous,
    distributed_noise,
    heart,
    lidc,
    messages,
    mnist_contrast,
    mnist_figure,
    mnist_messages,
    mnist_noniid,
    mnist_prior,
    mnist_private,
    mnist_scaffold,
    mnist_scattering,
    pneumonia,
)
from benchmarks.study import ROOT, read

STUDIES = (
    heart.STUDY, adult.STUDY, adult_tuning.STUDY, adult_label.STUDY, adult_clip.STUDY, adult_sizes.STUDY, adult_stacking.STUDY,
    adult_one_site.STUDY, messages.STUDY, mnist_private.STUDY, mnist_contrast.STUDY, mnist_prior.STUDY, mnist_scattering.STUDY,
    mnist_noniid.STUDY, mnist_scaffold.STUDY, mnist_messages.STUDY, lidc.STUDY, pneumonia.STUDY,
    distributed_noise.STUDY, asynchronous.STUDY,
)  # fmt: skip
PLACE = ROOT / "benchmarks" / "README.md"
HEAD = """# Accuracy studies

Each table below is written by `python -m benchmarks.readme` from `results/*.json`, and each result file by the one
command under its table, run from the root of the repository. A result file holds the command, the commit of the code,
versions, seeds, every key of every plan and every run. `--small` runs any script in seconds, to see that it works;
it finds nothing.

Speed and memory: [training](SPEED.md), [many small sites](COHORT.md), [transport](TRANSPORT.md),
[300 rounds with faults](SOAK.md), [a Ray cluster](RAY.md); secure sums:
[masks](SECAGG.md), [RLWE](RLWE.md), [Paillier](PAILLIER.md).

A seed fixes what is public: division, split, initial weights, client sampling. **The noise of private runs comes from the
operating system and is fresh each time**, so private rows come out again within their interval, not to the digit.
Every run has a ledger of its own here; at a real site all of them would add up in one. A ± is the half width of a
95 % interval of the mean over runs; with three runs Student's factor is 4.3, so those intervals are wide.
Published rows are those of the papers and reports that this project set out to reproduce; what is wrong with them is said there.
"""


def text() -> str:
    """Return what README.md should say now."""
    parts = [HEAD]
    for study in STUDIES:
        result = read(study.name)
        parts.append(study.section(result) if result else f"## {study.name}\n\nNot run yet.")
    return "\n\n".join(part.strip() for part in parts) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file, or compare it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.readme")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the file is stale")
    if parser.parse_args(arguments).check:
        return int(not PLACE.exists() or PLACE.read_text(encoding="utf-8") != text())
    PLACE.write_text(text(), encoding="utf-8")
    mnist_figure.write()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
