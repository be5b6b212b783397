"""What a secure sum and small messages need; every refusal says what to do."""

from collections.abc import Callable

import pytest

from consilia.plan.load import from_text
from consilia.plan.rules import broken

Problems = Callable[..., list[str]]
MASKS = ("secure_sum.mode=masks",)
SHARED = (*MASKS, "privacy.noise=distributed")
FEDAVG = ("training.algorithm=fedavg", "training.local_epochs=1")
OPEN = '[data]\nsource = "heart"\n[training]\nbatch_size = 32\n'
SIX = {"A": 199, "B": 172, "C": 30, "D": 85, "E": 60, "F": 70}


@pytest.mark.parametrize(
    ("changes", "who", "words"),
    [
        # Where noise may be shared out.
        (["privacy.noise=distributed"], "privacy.noise", "a secure sum that shows only the sum"),
        (["privacy.noise=distributed", "secure_sum.mode=attested", "secure_sum.policy=p.toml"], "privacy.noise",
         "the attested code adds it"),
        ([*SHARED, *FEDAVG], "privacy.noise", "one clipped sum a round"),
        ([*SHARED, "training.weight_decay=0.1"], "training.weight_decay", "0 with"),
        ([*SHARED, "privacy.clipping=adaptive"], "privacy.clipping", 'privacy.noise = "site"'),
        ([*SHARED, "aggregation.selection=poisson", "aggregation.fraction=0.9"], "privacy.noise", "the same number of sites"),
        ([*SHARED, "messages.quantize_bits=8"], "messages.quantize_bits", "how fine"),
        ([*SHARED, "privacy.against=server+colluding-sites"], "secure_sum.colluders", "at least 1"),
        ([*MASKS, "privacy.noise=server"], "privacy.noise", 'Set privacy.noise = "distributed"'),
        (["privacy.noise=server", "privacy.against=server+colluding-sites"], "privacy.against", "before the server sees"),
        # Who must answer.
        ([*MASKS, "secure_sum.dropouts=2"], "secure_sum.mode", "2 (4 asked, 2 may drop out)"),
        ([*MASKS, "secure_sum.dropouts=9"], "secure_sum.mode", "0 (4 asked"),
        ([*MASKS, "secure_sum.colluders=2"], "secure_sum.colluders", "at most 1: more of them get two lists"),
        ([*MASKS, "secure_sum.adversary=passive", "secure_sum.colluders=3"], "secure_sum.colluders", "at most 2: 3 sites"),
        (["secure_sum.mode=rlwe", "secure_sum.colluders=1"], "secure_sum.colluders", "One site that is shown others' vectors"),
        ([*MASKS, "secure_sum.adversary=passive", "secure_sum.dropouts=1", "secure_sum.colluders=2"], "secure_sum.colluders",
         "at least two answers"),
        ([*MASKS, "aggregation.selection=count", "aggregation.count=2"], "secure_sum.mode", "2 (2 asked"),
        ([*MASKS, "aggregation.quorum=0.6"], "aggregation.quorum", "at least the 4 answers of 4"),
        ([*MASKS, "secure_sum.dropouts=1", "aggregation.quorum=2"], "aggregation.quorum", "at least the 3 answers of 4"),
        # What each mode needs.
        (["secure_sum.mode=attested"], "secure_sum.policy", "any genuine machine passes"),
        (["secure_sum.mode=rlwe", "aggregation.selection=count", "aggregation.count=3"], "secure_sum.mode", "open each sum"),
        (["secure_sum.mode=paillier", "secure_sum.colluders=1"], "secure_sum.colluders", "Every site holds the key"),
        # Keys that nothing reads.
        (["secure_sum.dropouts=1"], "secure_sum.dropouts", "no effect"),
        (["secure_sum.colluders=1"], "secure_sum.colluders", "no effect"),
        (["secure_sum.mode=rlwe", "secure_sum.adversary=passive"], "secure_sum.adversary", "no effect"),
        ([*MASKS, "secure_sum.key_bits=2048"], "secure_sum.key_bits", "no effect"),
        ([*MASKS, "secure_sum.policy=p.toml"], "secure_sum.policy", "no effect"),
        ([*SHARED, "secure_sum.range=2"], "secure_sum.range", "no effect"),
        ([*SHARED, "secure_sum.value_bits=16"], "secure_sum.value_bits", "no effect"),
        ([*MASKS, "messages.quantize_bits=8", "secure_sum.value_bits=16"], "secure_sum.value_bits", "no effect"),
        # Small messages.
        (["messages.top_k=0.1"], "messages.top_k", "Error feedback carries rows over"),
        (["privacy.noise=server", "messages.quantize_bits=8"], "messages.quantize_bits", "than the noise is scaled for"),
        ([*FEDAVG, "privacy.unit=site", "training.scaffold=true", "privacy.control_clip_norm=1", "messages.random_k=0.5"],
         "messages.random_k", "training.scaffold = false"),
        (["training.server_optimizer=dp-adam", "messages.random_k=0.5"], "training.server_optimizer", "messages.random_k"),
    ],
)  # fmt: skip
def test_a_broken_rule_gives_one_message(problems: Problems, changes: list[str], who: str, words: str) -> None:
    found = problems(*changes)
    assert len(found) == 1, found
    assert who in found[0]
    assert words in found[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([*MASKS, "messages.top_k=0.1"], "tells about its rows"),
        (["messages.top_k=0.1", "messages.random_k=0.1"], "without messages.random_k"),
        (["messages.top_k=0.1", "messages.quantize_bits=8"], "without messages.quantize_bits"),
        ([*FEDAVG, "training.scaffold=true", "messages.top_k=0.1"], "training.scaffold = false"),
    ],
)
def test_top_k_is_for_plain_sums_alone(problems: Problems, changes: list[str], words: str) -> None:
    (found,) = problems(*changes, text=OPEN)
    assert words in found


@pytest.mark.parametrize(
    "changes",
    [
        SHARED,
        [*SHARED, "secure_sum.dropouts=1", "secure_sum.colluders=1"],
        [*SHARED, "training.batch=poisson", "training.sampling_rate=0.1"],
        [*SHARED, "training.batch=fixed", "training.batch_size=8"],
        [*SHARED, *FEDAVG, "privacy.unit=site", "training.weight_decay=0.1", "model.local_layers=head"],
        [*SHARED, *FEDAVG, "privacy.unit=site", "training.scaffold=true", "privacy.control_clip_norm=1"],
        [*SHARED, "messages.random_k=0.5"],
        [*SHARED, "privacy.clipping=per-layer"],
        [*SHARED, "evaluation.metrics=charged", "evaluation.noise_multiplier=40"],
        ["secure_sum.mode=rlwe", "privacy.noise=distributed", "secure_sum.dropouts=1"],
        ["secure_sum.mode=paillier", "privacy.noise=distributed", "secure_sum.dropouts=1", "secure_sum.key_bits=2048"],
        ["secure_sum.mode=attested", "secure_sum.policy=p.toml", "privacy.noise=server"],
        ["secure_sum.mode=attested", "secure_sum.policy=p.toml", "messages.quantize_bits=8"],
        [*MASKS, *FEDAVG, "secure_sum.range=2", "secure_sum.value_bits=16"],
        [*MASKS, *FEDAVG, "messages.quantize_bits=4", "messages.random_k=0.5"],
        [*MASKS, "aggregation.selection=poisson", "aggregation.fraction=0.9"],
        [*MASKS, "secure_sum.dropouts=1", "aggregation.quorum=3"],
        ["privacy.noise=server", "messages.random_k=0.5"],
    ],
)  # fmt: skip
def test_what_fits_together_checks(problems: Problems, changes: list[str]) -> None:
    assert problems(*changes) == []


def test_a_threshold_that_dropouts_miss_names_the_way_out(problems: Problems) -> None:
    (found,) = problems(*MASKS, "secure_sum.dropouts=2", counts=SIX)
    assert "at most 1: 5 of 6 sites" in found
    assert 'secure_sum.adversary = "passive"' in found
    assert problems(*MASKS, "secure_sum.dropouts=2", "secure_sum.adversary=passive", counts=SIX) == []


def test_liars_stand_fewer_colluders_than_the_threshold(problems: Problems) -> None:
    for sites in range(4, 30):
        counts = {f"s{index}": 40 for index in range(sites)}
        needed = 2 * sites // 3 + 1
        most = max(
            c for c in range(sites) if (sites - c) + 2 * c < 2 * needed
        )  # honest sites vote once, colluders twice
        assert problems(*MASKS, f"secure_sum.colluders={most}", counts=counts) == []
        assert len(problems(*MASKS, f"secure_sum.colluders={most + 1}", counts=counts)) == 1


def test_a_sum_that_no_ring_holds_is_refused_with_the_numbers(problems: Problems, private: str) -> None:
    text = private.replace("epsilon = 1.0", "noise_multiplier = 1e7")
    (found,) = problems(*SHARED, text=text)
    assert "shares of variance 1.1e+19" in found
    assert "4 sites x 131073 steps + noise up to " in found
    (found,) = problems("secure_sum.mode=rlwe", "secure_sum.value_bits=32", counts=dict.fromkeys("ABCDEFGH", 40))
    assert "threshold RLWE" in found


def test_stacking_has_no_sum() -> None:
    text = """
[data]
source = "heart"
[training]
algorithm = "stacking"
rounds = 1
batch = "full"
[privacy]
unit = "record"
epsilon = 1.0
[secure_sum]
mode = "masks"
"""
    assert any("A site answers once and is private by itself" in str(problem) for problem in broken(from_text(text)))
