"""The plan: a TOML file of plain values. Unknown keys are errors; every key says what it means.

Cross-key rules ("record-level noise at the server allows one local step") live in `plan.rules`, not here.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from consilia.dp import ranges

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=ranges.SAMPLING_RATE.low, le=1)]
Multiplier = Annotated[float, Field(ge=ranges.NOISE_MULTIPLIER.low, le=ranges.NOISE_MULTIPLIER.high)]
Norm = Annotated[float, Field(ge=ranges.CLIP_NORM.low, le=ranges.CLIP_NORM.high)]
Target = Annotated[float, Field(ge=ranges.EPSILON.low, le=ranges.EPSILON.high)]
Strength = Annotated[float, Field(gt=0, le=ranges.STRENGTH.high)]
Penalty = Annotated[float, Field(ge=0, le=ranges.STRENGTH.high)]
Count = Annotated[int, Field(ge=1, le=10**12)]
Name = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9 _.-]*$")]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class RunSection(_Section):
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


class DataSection(_Section):
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


class SitesSection(_Section):
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
            'Registered upper bounds on training rows a site (public numbers), or "public": the true counts '
            "are declared public."
        ),
    )
    population: Name | None = Field(
        None, description="Name of the people, which the ledger is kept under; a built-in table's own name when absent."
    )


class ModelSection(_Section):
    """The model, built at each site from installed code."""

    name: str = Field(
        "logistic",
        description="logistic, mlp, mnist-cnn, nodule-cnn, resnet-gn, or module:factory of installed code.",
    )
    hidden: list[Count] = Field(default_factory=lambda: [64], description="mlp: widths of the hidden layers.")
    activation: Literal["relu", "tanh"] = Field("relu", description="mlp and cnn: the activation.")
    local_layers: Literal["none", "norm", "head"] = Field(
        "none", description="Layers kept at the site: norm = FedBN, head = the last layer."
    )


class TrainingSection(_Section):
    """Rounds, local work and the server's optimizer."""

    algorithm: Literal["fedavg", "fedsgd"] = Field(
        "fedavg", description="fedavg: sites train and send differences; fedsgd: sites send one gradient."
    )
    rounds: int = Field(20, ge=1, le=10**7, description="Number of rounds.")
    local_epochs: Count | None = Field(
        None,
        description="fedavg: passes over the site's rows a round (Poisson: 1/sampling_rate steps a pass).",
    )
    local_steps: Count | None = Field(None, description="fedavg: steps a round, instead of epochs.")
    batch: Literal["full", "fixed", "poisson"] = Field(
        "fixed",
        description=("poisson: each row joins each batch with sampling_rate, secretly; needed for amplification."),
    )
    batch_size: Count | None = Field(None, description="fixed: rows a batch.")
    sampling_rate: Probability | None = Field(None, description="poisson: q, a public number.")
    batch_cap: Count | None = Field(
        None,
        description=(
            "poisson: largest batch; the excess is dropped and accounted. Chosen from public numbers when absent."
        ),
    )
    optimizer: Literal["sgd", "adam"] = Field("sgd", description="fedavg: the local optimizer.")
    learning_rate: Strength = Field(0.1, description="fedavg: the local rate.")
    momentum: float = Field(0.0, ge=0, lt=1, description="fedavg: momentum of local sgd (0.9 is usual).")
    weight_decay: Penalty = Field(0.0, description="L2 penalty added to the local gradient.")
    proximal_mu: Penalty = Field(0.0, description="FedProx: weight of mu/2 |y - x|^2; 0.01 to 1.")
    scaffold: bool = Field(False, description="SCAFFOLD: control variates against client drift.")
    server_optimizer: Literal["sgd", "momentum", "adagrad", "adam", "yogi"] = Field(
        "sgd", description="What the coordinator does with the average."
    )
    server_learning_rate: Strength = Field(1.0, description="The coordinator's rate.")
    server_momentum: float = Field(0.9, ge=0, lt=1, description="momentum: beta; adam, yogi: beta1.")
    server_beta2: float = Field(0.99, ge=0, lt=1, description="adam, yogi: beta2.")
    server_tau: Strength = Field(
        1e-3, description="adagrad, adam, yogi: adaptivity tau; the second moment starts at tau^2."
    )
    keep: Literal["last", "best", "tail-average"] = Field(
        "last", description="Which model is the result; tail-average: the mean of the second half's models."
    )
    patience: Count | None = Field(
        None,
        description=("Stop after so many evaluations without a better one; needs metrics that are public or charged."),
    )


class PrivacySection(_Section):
    """What is protected, how much, where the noise is drawn and against whom the claim holds."""

    unit: Literal["none", "record", "site"] = Field("none", description="What a neighbouring data set differs in.")
    noise: Literal["site", "server", "distributed"] = Field("site", description="Where the noise is drawn.")
    against: Literal["server", "other-sites", "world"] | None = Field(
        None,
        description=(
            "The adversary `epsilon` is claimed against; server for noise at the site, world for noise at "
            "the server when absent."
        ),
    )
    epsilon: Target | None = Field(None, description="Target for the whole run; the noise multiplier follows.")
    noise_multiplier: Multiplier | None = Field(
        None, description="Noise standard deviation over sensitivity, instead of epsilon."
    )
    delta: Annotated[float, Field(ge=ranges.DELTA.low, lt=1)] | None = Field(
        None, description="Public; well below 1 over the smallest site's count."
    )
    delta_reason: str | None = Field(
        None, max_length=500, description="Why a larger delta is accepted; printed on the privacy card."
    )
    clip_norm: Norm | None = Field(
        None, description="C: l2 bound on an example's gradient (record) or a site's update (site)."
    )
    control_clip_norm: Norm | None = Field(
        None, description="site unit with scaffold: l2 bound on the control variate's change."
    )


class AggregationSection(_Section):
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


class EvaluationSection(_Section):
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


class LedgerSection(_Section):
    """The site's lifetime budget for its population, over all runs."""

    max_epsilon: Positive | None = Field(
        None, description="Refuse a run that would pass it; lowers the ledgers' own limit for good."
    )


class Plan(_Section):
    """One training run, as all parties agree on it."""

    run: RunSection = Field(default_factory=RunSection)
    data: DataSection
    sites: SitesSection = Field(default_factory=SitesSection)
    model: ModelSection = Field(default_factory=ModelSection)
    training: TrainingSection = Field(default_factory=TrainingSection)
    privacy: PrivacySection = Field(default_factory=PrivacySection)
    aggregation: AggregationSection = Field(default_factory=AggregationSection)
    evaluation: EvaluationSection = Field(default_factory=EvaluationSection)
    ledger: LedgerSection = Field(default_factory=LedgerSection)
