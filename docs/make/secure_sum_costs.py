"""Write the costs in docs/howto/choose-a-secure-sum.md from the results of the benchmarks.

python docs/make/secure_sum_costs.py
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "howto" / "choose-a-secure-sum.md"
_RESULTS = ROOT / "benchmarks" / "results"
_PART = re.compile(r"(<!-- costs: .*? -->\n).*?(<!-- end of costs -->)", re.DOTALL)
_HEAD = ["mode", "a site hides its vector", "the coordinator adds ten", "to open the sum", "bytes a value, up (x float32)",
         "bytes a value, to open"]  # fmt: skip


def page() -> str:
    """Return the page's text as it should be."""
    rows = [_HEAD, ["---"] * len(_HEAD), *_masks(_read("secagg")), *_rlwe(_read("rlwe")), *_paillier(_read("paillier"))]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    told = (
        "Ten sites, 100,000 values of 16 bits. CPU seconds on one thread, medians; ratios carry over to other machines, "
        "seconds do not.\n"
    )
    names = {"masks": "SECAGG", "RLWE": "RLWE", "Paillier": "PAILLIER"}
    links = (
        f"Measured and explained: {', '.join(f'[{name}](../../benchmarks/{at}.md)' for name, at in names.items())}.\n"
    )
    return _PART.sub(lambda found: f"{found[1]}{told}\n{table}\n\n{links}{found[2]}", PAGE.read_text(encoding="utf-8"))


def _read(name: str) -> Any:
    return json.loads((_RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def _masks(result: Any) -> Iterator[list[str]]:
    like = {"sites": 10, "dim": 100_000, "dropouts": 0}
    (found,) = (one for one in result["settings"] if all(one[key] == value for key, value in like.items()))
    site, coordinator = (found[f"{who}_cpu_ms"]["median"] / 1000 for who in ("client", "server"))
    size = found["bytes_up"] / found["dim"]
    yield ["masks, 32-bit words", f"{site:.2g}, keys and votes included", f"{coordinator:.2g}, masks removed", "included",
           f"{size:.3g} ({size / 4:.3g})", "included"]  # fmt: skip


def _rlwe(result: Any) -> Iterator[list[str]]:
    found, scheme = result["found"], result["found"]["schemes"]["16 bits"]
    answer, opened = _median(scheme, "answer"), _median(scheme, "open")
    yield ["rlwe", _median(scheme, "encrypt"), _median(scheme, "add"),
           f"{answer} at each of {found['threshold']} sites, {opened} at the coordinator", _bytes(scheme),
           f"{scheme['asked_bytes_a_value']:.3g} down and {scheme['answer_bytes_a_value']:.3g} up, "
           f"for each of {found['threshold']} sites"]  # fmt: skip


def _paillier(result: Any) -> Iterator[list[str]]:
    for bits, key in result["keys"].items():
        yield [f"paillier, {bits} bits", _median(key, "encrypt"), _median(key, "add"), f"{_median(key, 'decrypt')} at one site",
               _bytes(key), f"{key['bytes_a_value']:.3g} down and the plain sum up, for one site"]  # fmt: skip


def _median(of: Any, step: str) -> str:
    return f"{of[f'{step}_s']['median']:.2g}"


def _bytes(of: Any) -> str:
    return f"{of['bytes_a_value']:.3g} ({of['bytes_a_value'] / 4:.3g})"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
