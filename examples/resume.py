"""Kill a run in the middle, then go on: no budget comes back and none is spent twice.

python examples/resume.py

A second process trains and is killed (SIGKILL: no time to clean up) after round 20; this one resumes its folder.
"""

import subprocess
import sys
from pathlib import Path

import consilia

FOLDER = Path("runs") / "killed"


def train() -> None:
    """Train, telling each round once it is durable."""
    plan = consilia.load(Path(__file__).parent / "plans" / "heart.toml", set=["training.rounds=60"])
    consilia.run(plan, out=FOLDER, on_round=lambda record: print(record["round"], flush=True))


def train_and_kill(after: int) -> None:
    """Let another process train up to a round, and kill it there."""
    command = [sys.executable, __file__, "train"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) == after:
                process.kill()
                break
    print(f"killed after round {after}")


if __name__ == "__main__":
    if sys.argv[1:] == ["train"]:
        train()
    else:
        train_and_kill(after=20)
        seen: list[object] = []
        result = consilia.resume(FOLDER, on_round=lambda record: seen.append(record["round"]))
        print(f"resumed at round {seen[0]}, {result.summary['rounds']} rounds in all")
        print(f"epsilon {result.summary['epsilon']:.3f}, as the plan says")
