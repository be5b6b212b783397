"""A secure sum's public numbers against computations by hand."""

import math
from collections.abc import Callable

import pytest

from consilia.core.spec import Adjacency
from consilia.dp.accountant import bound
from consilia.dp.discrete import reach
from consilia.dp.event import DiscreteGaussianEvent, Event
from consilia.plan.run_plan import RunPlan
from consilia.plan.secure import SecureTerms, threshold

Checked = Callable[..., RunPlan]
SHARED = ("secure_sum.mode=masks", "privacy.noise=distributed")
TOLERANT = (*SHARED, "secure_sum.dropouts=1", "secure_sum.colluders=1")
FEDAVG = ("training.algorithm=fedavg", "training.local_epochs=1")


def terms_of(plan: RunPlan) -> SecureTerms:
    assert plan.secure is not None
    return plan.secure


def share_of(plan: RunPlan, site: str) -> DiscreteGaussianEvent:
    (event,) = plan.charges[site].round_events
    assert isinstance(event, DiscreteGaussianEvent)
    return event


@pytest.mark.parametrize(
    ("adversary", "sites", "needed"),
    [("active", 3, 3), ("active", 4, 3), ("active", 6, 5), ("active", 9, 7), ("active", 100, 67), ("passive", 3, 2),
     ("passive", 4, 3), ("passive", 100, 51)],
)  # fmt: skip
def test_the_threshold_is_more_than_two_thirds_or_half(adversary: str, sites: int, needed: int) -> None:
    assert threshold("masks", adversary, sites) == needed


def test_in_the_clear_there_is_nothing_to_agree_on(checked: Checked) -> None:
    plan = checked()
    assert plan.secure is None
    assert plan.site("A").secure is None


def test_a_record_s_grid_by_hand(checked: Checked) -> None:
    plan = checked(*TOLERANT)
    terms, (grid,) = terms_of(plan), terms_of(plan).grids
    assert (terms.cohort, terms.fewest, terms.honest, terms.threshold) == (4, 3, 2, 3)
    # Weights are counts and a record moves its site's mean by C / count: each site's own contribution is C / 199.
    delta = 1.0 / 199
    scale = 2.0 ** math.ceil(math.log2(100 * math.sqrt(28) / delta))
    assert (grid.kept, grid.scale) == (28, scale)
    assert 0.005 < math.sqrt(28) / (scale * delta) <= 0.01
    assert grid.l2 == pytest.approx(scale * delta + math.sqrt(28), rel=1e-12)
    assert grid.values == scale + 1  # a full batch of 199 clipped gradients over 199: at most C on a coordinate
    assert grid.share_variance == math.ceil((plan.noise_multiplier * (grid.l2 or 0)) ** 2 / 2)
    assert grid.deviation(4) == pytest.approx(2 * math.sqrt(grid.share_variance) / scale)
    assert terms.ring is not None
    assert terms.ring.bits == 24
    largest = 4 * grid.values + reach(grid.share_variance, 4, 28)
    assert 2**15 <= largest < 2**23
    assert terms.value_bound == grid.values + reach(grid.share_variance, 1, 28)
    assert plan.site("C").secure == terms


def test_a_site_s_grid_by_hand(checked: Checked) -> None:
    plan = checked(*SHARED, *FEDAVG, "privacy.unit=site", "training.scaffold=true", "privacy.control_clip_norm=2")
    (grid,) = terms_of(plan).grids
    delta = math.hypot(1.0, 2.0)
    assert grid.kept == 56  # a control variate of as many numbers rides along
    whole = grid.scale * delta  # one vector is rounded until it is short enough: hardly any excess
    assert grid.l2 == pytest.approx(math.sqrt(whole**2 + 56 / 4 + whole + math.sqrt(56) / 2))
    assert whole < (grid.l2 or 0) < 1.001 * whole
    own, least = share_of(plan, "C").l2, whole * 30 / 199  # weight 30 of 199
    assert own == pytest.approx(math.sqrt(least**2 + 56 / 4 + least + math.sqrt(56) / 2))
    assert share_of(plan, "A").l2 == pytest.approx(grid.l2)


def test_a_capped_batch_bounds_the_range(checked: Checked) -> None:
    plan = checked(*SHARED, "training.batch=poisson", "training.sampling_rate=0.1")
    (grid,) = terms_of(plan).grids
    reached = max(
        terms.count / 199 * terms.phases[0].batch_cap / (0.1 * terms.count) for terms in plan.sites
    )  # weight x cap x C / expected batch
    assert grid.values == math.ceil(grid.scale * reached) + 1
    assert share_of(plan, "A").sampling_rate == 0.1


def test_random_k_stretches_what_one_record_moves(checked: Checked) -> None:
    (whole,), (part,) = terms_of(checked(*SHARED)).grids, terms_of(checked(*SHARED, "messages.random_k=0.25")).grids
    assert (part.kept, part.values - 1) == (7, whole.scale and part.scale * 4)
    assert part.l2 == pytest.approx(part.scale * 4 / 199 + math.sqrt(7))


def test_replacing_a_record_moves_twice_as_far(checked: Checked) -> None:
    plan = checked(*SHARED, "training.batch=fixed", "training.batch_size=8")
    (grid,) = terms_of(plan).grids
    event = share_of(plan, "A")
    assert event.adjacency is Adjacency.REPLACE_ONE
    assert event.l2 == pytest.approx(2 * ((grid.l2 or 0) - math.sqrt(28)) + math.sqrt(28))


def test_numbers_that_no_clip_norm_bounds_are_cut(checked: Checked) -> None:
    plan = checked("secure_sum.mode=masks", "secure_sum.range=2", "secure_sum.value_bits=16")
    (grid,) = terms_of(plan).grids
    assert (grid.cut, grid.scale, grid.values, grid.share_variance) == (2.0, 32767 / 2, 32768, 0)
    assert terms_of(plan).ring is not None
    assert isinstance(plan.charges["A"].round_events[0], Event)  # each site's own noise, as in the clear
    (small,) = terms_of(checked("secure_sum.mode=masks", "messages.quantize_bits=8")).grids
    assert small.values == 128


def test_sealed_updates_are_no_integers(checked: Checked) -> None:
    terms = terms_of(checked("secure_sum.mode=attested", "secure_sum.policy=p.toml"))
    assert (terms.ring, terms.grids, terms.threshold) == (None, (), 1)


def test_each_adversary_counts_on_the_shares_it_cannot_know(checked: Checked) -> None:
    alone, pooled = checked(*SHARED), checked(*TOLERANT)
    assert alone.against == "server"
    assert pooled.against == "server+colluding-sites"
    assert {who: terms_of(pooled).shares(who) for who in pooled.charges["A"].epsilon} == {
        "server": 2, "server+colluding-sites": 2, "other-sites": 2, "world": 2,
    }  # fmt: skip
    first, second = alone.charges["A"].epsilon, pooled.charges["A"].epsilon
    assert first["server+colluding-sites"] is None
    assert first["server"] == first["world"] == pytest.approx(alone.epsilon)
    assert (first["other-sites"] or 0) > 1.0  # a site knows its own share
    assert second["server+colluding-sites"] == second["other-sites"] == pytest.approx(pooled.epsilon)
    assert second["server"] == second["world"] == second["other-sites"]  # a tolerated colluder may have drawn no share
    event = share_of(pooled, "A")
    assert (event.shares, event.dim, event.steps) == (2, 28, 1)
    assert pooled.epsilon == bound(((event, 40),), 1e-5).epsilon <= 1.0


def test_with_a_key_at_every_site_colluding_sites_are_bounded_by_nothing(checked: Checked) -> None:
    terms = terms_of(checked("secure_sum.mode=paillier", "privacy.noise=distributed", "secure_sum.dropouts=1"))
    assert (terms.shares("server"), terms.shares("server+colluding-sites"), terms.shares("other-sites")) == (3, None, 2)


def test_one_dropout_and_one_colluder_of_four_double_the_variance(checked: Checked) -> None:
    plain, tolerant = checked(*SHARED), checked(*TOLERANT)
    assert plain.noise_multiplier == tolerant.noise_multiplier  # the shares that are counted on carry the same
    assert (terms_of(plain).excess, terms_of(tolerant).excess) == (1.0, 2.0)
    one, two = terms_of(plain).grids[0].share_variance, terms_of(tolerant).grids[0].share_variance
    assert two / one == pytest.approx(2.0, rel=1e-6)


@pytest.mark.parametrize("changes", [[], ["training.batch=poisson", "training.sampling_rate=0.1"]])
def test_calibrated_noise_meets_the_target_and_less_does_not(
    checked: Checked, private: str, changes: list[str]
) -> None:
    plan = checked(*TOLERANT, *changes)
    assert 0.999 < (plan.epsilon or 0) <= 1.0

    def epsilon(z: float) -> float:
        text = private.replace("epsilon = 1.0", f"noise_multiplier = {z}")
        return checked(*TOLERANT, *changes, text=text).epsilon or math.inf

    costs = [epsilon(plan.noise_multiplier * factor) for factor in (0.8, 0.995, 1.0, 1.01, 1.3)]
    assert costs == sorted(costs, reverse=True)
    assert costs[1] > 1.0 >= costs[2]


@pytest.mark.parametrize("sums", [SHARED, TOLERANT])
def test_a_budget_ends_the_run_before_the_round_that_would_pass_it(checked: Checked, sums: tuple[str, ...]) -> None:
    plan = checked(*sums, "privacy.noise_multiplier=12")
    assert 0 < len(plan.schedule) < 40
    assert (plan.epsilon or 9) <= 1.0
    event = share_of(plan, "A")
    assert bound(((event, len(plan.schedule) + 1),), 1e-5).epsilon > 1.0


def test_phases_have_grids_of_their_own_and_one_ring(checked: Checked) -> None:
    text = """
[data]
source = "heart"
[training]
algorithm = "fedsgd"
batch = "full"
[privacy]
unit = "record"
noise = "distributed"
epsilon = 1.0
delta = 1e-5
clip_norm = 1.0
[secure_sum]
mode = "masks"
[[phases]]
rounds = 10
[[phases]]
rounds = 10
clip_norm = 0.25
noise_scale = 2.0
"""
    first, second = terms_of(checked(text=text)).grids
    assert second.scale == 4 * first.scale
    assert second.share_variance == pytest.approx(4 * first.share_variance, rel=1e-6)
    quiet = text.replace("epsilon = 1.0", "noise_multiplier = 9.0").replace("noise_scale = 2.0", "noise = false")
    plan = checked(text=quiet)
    assert terms_of(plan).grids[1].share_variance == 0
    assert plan.epsilon is None
    assert plan.charges["A"].round_events[1] == Event(0.0)


@pytest.mark.parametrize(
    "change",
    ["secure_sum.adversary=passive", "secure_sum.dropouts=1", "secure_sum.colluders=1", "messages.random_k=0.5"],
)
def test_the_digest_changes_with_the_keys(checked: Checked, change: str) -> None:
    assert checked(*SHARED).digest != checked(*SHARED, change).digest


def test_rounds_that_ask_too_few_sites_are_counted(checked: Checked) -> None:
    plan = checked("secure_sum.mode=masks", "aggregation.selection=poisson", "aggregation.fraction=0.8")
    few = sum(len(names) < 3 for names in plan.schedule)
    assert 0 < few < 40
    assert any(f"too few sites for a secure sum in {few} of" in warning for warning in plan.warnings)
    assert not any("secure sum" in warning for warning in checked("secure_sum.mode=masks").warnings)


def test_what_anyone_can_recompute_hides_nothing(checked: Checked) -> None:
    plan = checked("secure_sum.mode=masks", "run.reproducible=true")
    assert any("hides nothing" in warning for warning in plan.warnings)
