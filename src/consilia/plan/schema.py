"""The plan: a TOML file of plain values. Unknown keys are errors; every key says what it means.

Cross-key rules ("record-level noise at the server allows one local step") live in `plan.rules`, not here.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from consilia.plan.privacy import PrivacySection
from consilia.plan.secure_sum import MessagesSection, SecureSumSection
from consilia.plan.stacking import StackSection
from consilia.plan.training import TrainingSection
from consilia.plan.values import Count, Multiplier, Name, Norm, Positive, Probability, Rounds, Section, Strength


class RunSection(Section):
    """Name of the run and its public randomness."""

    name: Name = Field("run", description="A short name; it begins the run's folder.")
    seed: int = Field(
        0,
        ge=0,
        lt=2**63,
        description="Public seed: partition, split, model initialisation, client sampling. Never noise.",
    )
    reproducible: bool = Field(
        False, description="Pin kernels, threads and all randomness, noise included; claims no epsilon."
    )


class DataSection(Section):
    """Where the rows come from and what they mean."""

    source: Literal["heart", "adult", "csv", "npz", "idx"] = Field(description="A built-in table or a kind of file.")
    path: str | None = Field(None, description="File of csv, npz or idx images; relative to the plan file.")
    labels_path: str | None = Field(None, description="File of idx labels.")
    label: str | None = Field(None, description="csv: the column to predict.")
    classes: list[str] | None = Field(
        None, description="csv: values of the label, in order; npz, idx: names of the classes 0, 1, ..."
    )
    numeric: dict[str, tuple[float, float]] = Field(
        default_factory=dict,
        description=("csv: column -> its public range [low, high]; values are clipped to it and scaled to [-1, 1]."),
    )
    categories: dict[str, list[str]] = Field(
        default_factory=dict, description="csv: column -> its public list of values; others count as missing."
    )
    missing: Literal["drop", "indicate"] = Field(
        "drop", description="Rows with a missing value: drop them, or keep them with an indicator column."
    )
    id_column: str | None = Field(None, description="csv: unique row id.")
    site_column: str | None = Field(None, description='csv: the column that names the site (partition = "natural").')
    patient_column: str | None = Field(None, description="csv: all rows of a patient stay on one side of the split.")
    split: Literal["official", "hash", "exact"] = Field(
        "hash",
        description=(
            "official: the source's own test rows; hash: by a hash of patient, id or row; exact: "
            "ceil(fraction x rows) a site, for benchmarks whose split is public."
        ),
    )
    test_fraction: float = Field(0.25, ge=0, lt=1, description="Share of rows held out for evaluation.")
    train_rows: Count | None = Field(
        None, description="Use only the first n training rows of a seeded order (studies)."
    )
    features: Literal["raw", "scattering"] = Field(
        "raw",
        description="What the model is given: the rows, or wavelet scattering of images (fixed, 81 channels at a quarter).",
    )
    normalise: Literal["none", "group"] = Field(
        "none", description="group: each image's groups of channels to mean 0 and variance 1, by that image alone."
    )


class SitesSection(Section):
    """Who takes part; for a simulation, how the rows are divided."""

    partition: Literal["natural", "iid", "dirichlet", "one-label", "quantity-skew"] = Field(
        "natural", description="How rows come to sites."
    )
    count: Count | None = Field(None, description="Number of sites (not for natural).")
    alpha: Positive | None = Field(
        None, description="dirichlet: concentration; quantity-skew: exponent of the power law."
    )
    sizes: list[Count] | None = Field(None, description="quantity-skew: the sizes themselves, instead of alpha.")
    one_label_sites: Count = Field(1, description="one-label: how many sites hold a single label (the rest is iid).")
    only: list[Name] | None = Field(None, description="natural: the sites that take part; all when absent.")
    counts: Literal["public"] | dict[str, Count] | None = Field(
        None,
        description=(
            "Registered upper bounds on training rows a site, or on patients where the unit is the patient (public "
            'numbers), or "public": the true counts are declared public.'
        ),
    )
    population: Name | None = Field(
        None, description="Name of the people, which the ledger is kept under; a built-in table's own name when absent."
    )


class ModelSection(Section):
    """The model, built at each site from installed code."""

    name: str = Field(
        "logistic",
        description="logistic, mlp, mnist-cnn, nodule-cnn, lung-cnn, resnet-gn, ws-resnet, tabular-transformer, or "
        "module:factory of installed code.",
    )
    hidden: list[Count] = Field(default_factory=lambda: [64], description="mlp: widths of the hidden layers.")
    activation: Literal["relu", "tanh"] = Field("relu", description="mlp and cnn: the activation.")
    local_layers: Literal["none", "norm", "head"] = Field(
        "none", description="Layers kept at the site: norm = FedBN, head = the last layer."
    )
    initial: str | None = Field(
        None,
        description="Weights to start from, a safetensors file trained on public data; relative to the plan file. "
        "A head of another shape is left out.",
    )
    initial_source: str | None = Field(
        None, max_length=500, description="initial: which public data it was trained on; printed on the privacy card."
    )


class AggregationSection(Section):
    """Whose answers count, and how much."""

    selection: Literal["all", "count", "fraction", "poisson", "tilted"] = Field(
        "all", description="Client sampling each round."
    )
    count: Count | None = Field(None, description="count, tilted: sites a round.")
    fraction: Probability | None = Field(
        None, description="fraction: share of sites a round; poisson: each site's probability."
    )
    tilt: float = Field(
        0.5,
        ge=0,
        le=1,
        description=("tilted: inclusion ~ (registered count)^-tilt; corrected in the average, factor capped at 4."),
    )
    weights: Literal["n", "power", "uniform", "capped"] = Field(
        "n", description="Weight of a site: n, n^alpha, 1, or min(n, cap)."
    )
    alpha: float = Field(0.5, ge=0, le=1, description="power: the exponent.")
    cap: Count | None = Field(None, description="capped: the cap on n.")
    quorum: float = Field(0.5, gt=0, description="Answers needed: a share of the sites asked when <= 1, else a number.")
    deadline_seconds: Positive = Field(600.0, description="How long a round waits.")
    mode: Literal["synchronous", "two-phase", "buffered"] = Field(
        "synchronous",
        description="synchronous: a round waits for all it asked; two-phase: sites train when they can, and a round adds what "
        "those have that are ready; buffered: the same in the clear, each update leaving when it is done.",
    )
    ready: Count | None = Field(
        None, description="two-phase, buffered: sites that a round adds; half of all, rounded up, when absent."
    )
    max_staleness: int = Field(
        3,
        ge=0,
        le=1000,
        description="two-phase, buffered: steps that the model may have made since a site began; an older update is dropped.",
    )
    max_participations: Rounds | None = Field(
        None,
        description="two-phase, buffered: updates that a site may begin in the run, which is what its ledger is charged for; "
        "one a round when absent.",
    )


class EvaluationSection(Section):
    """What may be known about held-out rows."""

    metrics: Literal["public", "charged", "hidden"] = Field(
        "hidden",
        description=(
            "Held-out rows' metrics: declared public by their holders, released with charged noise, or kept "
            "at the site."
        ),
    )
    every: Count = Field(1, description="Evaluate each so many rounds, and after the last.")
    noise_multiplier: Multiplier | None = Field(
        None, description="charged: noise on the count of correct rows (sensitivity 1)."
    )
    stop_loss: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None,
        description="Take a round back whose accuracy is more than this below the last good model's: that model stays, the "
        "charge too.",
    )


class LedgerSection(Section):
    """The site's lifetime budget for its population, over all runs."""

    max_epsilon: Positive | None = Field(
        None, description="Refuse a run that would pass it; lowers the ledgers' own limit for good."
    )


class PhaseSection(Section):
    """A part of the rounds with settings of its own; what it leaves out is as in the other sections."""

    rounds: Rounds = Field(description="Number of rounds of this phase; training.rounds is their sum and not given.")
    learning_rate: Strength | None = Field(None, description="fedavg: the local rate.")
    server_learning_rate: Strength | None = Field(None, description="The coordinator's rate.")
    sampling_rate: Probability | None = Field(None, description="poisson: q.")
    batch_size: Count | None = Field(None, description="fixed: rows a batch.")
    local_steps: Count | None = Field(None, description="fedavg: steps a round.")
    clip_norm: Norm | None = Field(None, description="C.")
    train: Literal["all", "head", "backbone"] = Field(
        "all", description="What moves: every layer, the last one with parameters, or all but that."
    )
    noise: bool = Field(
        True, description="false: clipped but not noised. The run then has no epsilon, whatever the other phases add."
    )
    noise_scale: Annotated[float, Field(ge=0.01, le=100)] = Field(
        1.0, description="Noise multiplier of this phase over the run's: how the budget is split."
    )


class Plan(Section):
    """One training run, as all parties agree on it."""

    run: RunSection = Field(default_factory=RunSection)
    data: DataSection
    sites: SitesSection = Field(default_factory=SitesSection)
    model: ModelSection = Field(default_factory=ModelSection)
    training: TrainingSection = Field(default_factory=TrainingSection)
    privacy: PrivacySection = Field(default_factory=PrivacySection)
    secure_sum: SecureSumSection = Field(default_factory=SecureSumSection)
    messages: MessagesSection = Field(default_factory=MessagesSection)
    aggregation: AggregationSection = Field(default_factory=AggregationSection)
    evaluation: EvaluationSection = Field(default_factory=EvaluationSection)
    ledger: LedgerSection = Field(default_factory=LedgerSection)
    stack: StackSection = Field(default_factory=StackSection)
    phases: list[PhaseSection] = Field(default_factory=list, max_length=50)


def section_models() -> dict[str, type[BaseModel]]:
    """Return the model of each section; `phases` is a list of sections of one kind."""
    found: dict[str, type[BaseModel]] = {}
    for name, field in Plan.model_fields.items():
        kind: Any = PhaseSection if name == "phases" else field.annotation
        found[name] = kind
    return found
