"""The odometer beside the rounds: never below what a site was charged."""

from itertools import permutations

from consilia.core.spec import Segment
from consilia.dp.accountant import bound
from consilia.plan.check import check
from consilia.plan.load import from_text
from consilia.rounds.spending import Spending

SAMPLED = """
[data]
source = "heart"
[sites]
counts = "public"
[training]
algorithm = "fedsgd"
batch = "full"
rounds = 5
[privacy]
unit = "record"
noise_multiplier = 4.0
clip_norm = 1.0
delta = 1e-5
[aggregation]
selection = "count"
count = 3
"""


def test_a_site_asked_less_often_does_not_hide_what_the_others_spent() -> None:
    counts = dict.fromkeys("ABCD", 100)
    run = check(from_text(SAMPLED), counts=counts, input_shape=(3,), classes=2, segments=(Segment("weight", (3,)),))
    turns = {terms.name: terms.participations for terms in run.sites}
    assert sorted(turns.values()) == [3, 4, 4, 4]
    event = run.charges["A"].round_events[0]
    assert event is not None
    expected = bound([(event, 4)], 1e-5).epsilon
    for order in permutations(turns):
        assert Spending(run).epsilon({site: [turns[site]] for site in order}, 0) == expected
