"""A private federated model of heart disease in four hospitals, in ten lines.

python examples/heart.py
"""

from pathlib import Path

import consilia

plan = consilia.load(Path(__file__).parent / "plans" / "heart.toml", set=["privacy.epsilon=3"])
checked = consilia.check(plan)  # the numbers that follow from the plan, before anything is charged
print(f"{len(checked.sites)} sites, noise multiplier {checked.noise_multiplier:.2f}")

result = consilia.run(plan)
for site, score in result.summary["per_site"].items():
    print(f"{site:<14} {score['accuracy']:.3f} of {score['n']} held-out rows")
print(f"all rows       {result.summary['accuracy']:.3f}")
print(f"epsilon {result.summary['epsilon']:.3f} at delta {result.summary['delta']} for one {result.summary['unit']}")
print(f"report in {consilia.write_report(result.folder)}")
