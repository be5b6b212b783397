"""Write the costs in docs/howto/choose-a-secure-sum.md from the results of the benchmarks.

python docs/make/secure_sum_costs.py
"""

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "howto" / "choose-a-secure-sum.md"
_RESULTS = ROOT / "benchmarks" / "results"
_PART = re.compile(r"(<!-- costs: .*? -->\n).*?(<!-- end of costs -->)", re.DOTALL)
_HEAD = [
    "mode",
    "sites",
    "values",
    "a site, CPU s",
    "coordinator, CPU s",
    "to open, CPU s",
    "bytes a value (x float32)",
]


def page() -> str:
    """Return the page's text as it should be."""
    rows = [_HEAD, ["---"] * len(_HEAD), *_paillier(_read("paillier"))]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    told = "CPU time on one thread, medians. Ratios carry over to other machines, seconds do not.\n"
    links = "Measured and explained: [Paillier](../../benchmarks/PAILLIER.md).\n"
    return _PART.sub(lambda found: f"{found[1]}{told}\n{table}\n\n{links}{found[2]}", PAGE.read_text(encoding="utf-8"))


def _read(name: str) -> Any:
    return json.loads((_RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def _paillier(result: Any) -> list[list[str]]:
    return [
        [f"paillier, {bits} bits", "10", f"{key['values']:,}", *(f"{key[f'{step}_s']['median']:.2g}" for step in
         ("encrypt", "add", "decrypt")), f"{key['bytes_a_value']:.3g} ({key['bytes_a_value'] / 4:.3g})"]
        for bits, key in result["keys"].items()
    ]  # fmt: skip


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
