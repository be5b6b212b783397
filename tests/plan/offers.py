"""Offers to judge: plans over a csv file that no test reads, checked with made-up counts, and a policy that lets them through."""

from functools import cache

from consilia.core.spec import Segment
from consilia.plan.check import check
from consilia.plan.clauses import Spent
from consilia.plan.consent import Verdict, judge
from consilia.plan.load import from_text
from consilia.plan.policy import Policy
from consilia.plan.run_plan import RunPlan

PLAN = """
[data]
source = "csv"
path = "rows.csv"
label = "disease"
classes = ["no", "yes"]
numeric = { age = [18, 100], pressure = [60, 220] }
site_column = "hospital"
patient_column = "patient"
[sites]
counts = { A = 4000, B = 3000, C = 3500, D = 5000 }
population = "cardiology"
[training]
algorithm = "fedsgd"
batch = "full"
rounds = 20
[privacy]
unit = "record"
noise = "distributed"
epsilon = 1.0
delta = 1e-6
clip_norm = 1.0
[secure_sum]
mode = "masks"
dropouts = 1
colluders = 1
"""
SITE = "A"
COUNTS = {"A": 4000, "B": 3000, "C": 3500, "D": 5000}
OPEN = '[approval]\nmode = "never"\n'  # strict but for the approval


@cache
def checked(*overrides: str, sites: int = 4) -> RunPlan:
    counts = dict(list(COUNTS.items())[:sites])
    told = ", ".join(f"{name} = {count}" for name, count in counts.items())
    plan = from_text(PLAN, [f"sites.counts={{ {told} }}", *overrides])
    segments = (Segment("weight", (2, 2)), Segment("bias", (2,)))
    return check(plan, counts=counts, input_shape=(2,), classes=2, segments=segments)


def verdict(policy: str, plan: RunPlan, spent: Spent | None = None, approved: frozenset[str] = frozenset()) -> Verdict:
    return judge(Policy.from_text(policy), plan.site(SITE), plan, spent=spent or {}, approved=approved)


HEART = """
[run]
reproducible = true
[data]
source = "heart"
[sites]
population = "{population}"
counts = {{ A = 900, B = 900, C = 900 }}
[training]
algorithm = "fedsgd"
batch = "full"
rounds = 2
[privacy]
unit = "record"
epsilon = 1.0
delta = 1e-6
clip_norm = 1.0
"""


def heart(population: str) -> RunPlan:
    """Return a reproducible plan on a built-in table, kept under a name of its own."""
    plan = from_text(HEART.format(population=population))
    counts, segments = dict.fromkeys("ABC", 900), (Segment("weight", (2, 2)),)
    return check(plan, counts=counts, input_shape=(2,), classes=2, segments=segments)
