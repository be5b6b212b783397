"""What checking a plan yields: every number that follows from it, before training.

A `RunPlan` has two halves. `SiteHalf` is all that one site needs to take part and to judge what it agrees to;
it imports no rule, optimizer or report. The coordinator's half is the rest.
"""

from dataclasses import dataclass

from consilia.core.spec import Adjacency, UpdateSpec
from consilia.dp.event import AnyEvent, Event
from consilia.plan.phases import Phase
from consilia.plan.schema import Plan
from consilia.plan.secure import SecureTerms

ADVERSARIES = ("server", "server+colluding-sites", "other-sites", "world")


@dataclass(frozen=True)
class PhaseTerms:
    """One site's public numbers in one phase.

    Attributes:
        participations: Rounds in which the public schedule asks it; what is charged.
        expected_batch: Public normaliser of a step: q x count, the batch size, or the count of a full batch;
            0 where a batch protects nothing inside a site (unit none or site) and its plain mean is taken.
        batch_cap: Largest batch; a Poisson batch drops its excess, which is accounted.
        steps: Local steps a round.
    """

    participations: int
    expected_batch: float
    batch_cap: int
    steps: int


@dataclass(frozen=True)
class SiteTerms:
    """One site's public numbers in a run.

    Attributes:
        name: The site.
        count: Registered upper bound on its training rows, or patients where they are the unit (public).
        weight: Its public weight in the average; for tilted client sampling, its correction included.
        inclusion: Share of rounds in which client sampling asks it, on average.
        phases: What each phase asks of it.
    """

    name: str
    count: int
    weight: float
    inclusion: float
    phases: tuple[PhaseTerms, ...]

    @property
    def participations(self) -> int:
        """Rounds of the whole run in which the public schedule asks it."""
        return sum(phase.participations for phase in self.phases)


@dataclass(frozen=True)
class Charge:
    """What one site's records may be charged in the run, per adversary; None where nothing bounds it.

    Attributes:
        round_events: For each phase the mechanism of one answered round, as the site's ledger books it; None without DP.
            A phase that clips and adds no noise is booked with multiplier 0.
        evaluation_event: The mechanism of one charged evaluation, or None.
        evaluations: Number of charged evaluations.
        epsilon: {"server": ..., "server+colluding-sites": ..., "other-sites": ..., "world": ...}
        extra_delta: The part of delta spent on batches cut at the cap.
        accountant: Name and version of the accountant that gave the bound.
    """

    round_events: tuple[AnyEvent | None, ...]
    evaluation_event: Event | None
    evaluations: int
    epsilon: dict[str, float | None]
    extra_delta: float
    accountant: str

    @property
    def booked(self) -> bool:
        """True if the run charges the site's ledger."""
        return any(event is not None for event in self.round_events)


@dataclass(frozen=True)
class SiteHalf:
    """All that one site needs of the plan."""

    plan: Plan
    phases: tuple[Phase, ...]
    digest: str
    terms: SiteTerms
    charge: Charge
    spec: UpdateSpec
    adjacency: Adjacency
    against: str
    noise_multiplier: float
    population: str
    within: str | None = None
    secure: SecureTerms | None = None

    @property
    def events(self) -> tuple[tuple[AnyEvent, int], ...]:
        """What the site may be charged in the run, as its ledger admits it; empty without DP."""
        pairs = zip(self.charge.round_events, self.terms.phases, strict=True)
        events = [(event, phase.participations) for event, phase in pairs if event is not None]
        if events and self.charge.evaluation_event is not None and self.charge.evaluations:
            events.append((self.charge.evaluation_event, self.charge.evaluations))
        return tuple(events)

    def phase(self, round_number: int) -> Phase:
        """Return the phase of a round, the last one's for any later number."""
        return phase_of(self.phases, round_number)


def phase_of(phases: tuple[Phase, ...], round_number: int) -> Phase:
    """Return the phase that a round belongs to, the last one for any later number."""
    return next((phase for phase in phases if round_number <= phase.last), phases[-1])


@dataclass(frozen=True)
class RunPlan:
    """A checked plan.

    Attributes:
        plan: The plan as agreed.
        phases: Its phases; fewer rounds than agreed where the budget ends before.
        digest: SHA-256 of the plan's canonical form, the sites' registered numbers, the model's shape and the software's version.
        sites: Every site's public terms, in order of name.
        charges: Per site, what may be charged.
        spec: The update as it leaves the learner.
        schedule: For each round, the names of the sites asked (public).
        adjacency: How neighbouring data sets differ.
        against: The adversary `epsilon` is claimed against.
        noise_multiplier: z of every noisy step; 0 without DP.
        epsilon: Largest bound over sites against `against`; None without a claim.
        delta: Delta of the claim; None without DP.
        warnings: What a reader of the privacy card must know.
        within: The search of hyper-parameters that this run is a trial of: its allotment covers the run, and the bounds
            are those of the whole search; None for a run of its own.
        secure: The secure sum's public numbers; None where the coordinator sees each site's update.
    """

    plan: Plan
    phases: tuple[Phase, ...]
    digest: str
    sites: tuple[SiteTerms, ...]
    charges: dict[str, Charge]
    spec: UpdateSpec
    schedule: tuple[tuple[str, ...], ...]
    adjacency: Adjacency
    against: str
    noise_multiplier: float
    epsilon: float | None
    delta: float | None
    warnings: tuple[str, ...]
    within: str | None = None
    secure: SecureTerms | None = None

    def phase(self, round_number: int) -> Phase:
        """Return the phase of a round, the last one for any later number."""
        return phase_of(self.phases, round_number)

    def site(self, name: str) -> SiteHalf:
        """Return the half of the plan that one site needs."""
        terms = next(terms for terms in self.sites if terms.name == name)
        return SiteHalf(
            plan=self.plan,
            phases=self.phases,
            digest=self.digest,
            terms=terms,
            charge=self.charges[name],
            spec=self.spec,
            adjacency=self.adjacency,
            against=self.against,
            noise_multiplier=self.noise_multiplier,
            population=self.population,
            within=self.within,
            secure=self.secure,
        )

    @property
    def population(self) -> str:
        """Population id that the sites' ledgers are kept under."""
        return self.plan.sites.population or self.plan.data.source
