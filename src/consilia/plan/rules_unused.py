"""Keys that would have no effect: a plan that says something and means nothing misleads whoever signs it."""

from collections.abc import Callable
from typing import Any

from consilia.core.errors import Problem
from consilia.plan.schema import Plan

# (keys, the setting they need, whether the plan has it). A key counts as set when it differs from its default, so
# that a plan written out with all its defaults, as a journal keeps it, is the same plan.
_Rule = tuple[str, str, Callable[[Plan], bool]]
_RULES: tuple[_Rule, ...] = (
    (
        "data.label data.numeric data.categories data.missing data.id_column data.site_column data.patient_column",
        'data.source = "csv"',
        lambda p: p.data.source == "csv",
    ),
    ("data.path data.classes", 'data.source = "csv", "npz" or "idx"', lambda p: p.data.source in ("csv", "npz", "idx")),
    ("data.labels_path", 'data.source = "idx"', lambda p: p.data.source == "idx"),
    ("data.test_fraction", 'data.split = "hash" or "exact"', lambda p: p.data.split != "official"),
    ("sites.count", 'sites.partition other than "natural"', lambda p: p.sites.partition != "natural"),
    (
        "sites.alpha",
        'sites.partition = "dirichlet" or "quantity-skew"',
        lambda p: p.sites.partition in ("dirichlet", "quantity-skew"),
    ),
    ("sites.sizes", 'sites.partition = "quantity-skew"', lambda p: p.sites.partition == "quantity-skew"),
    ("sites.one_label_sites", 'sites.partition = "one-label"', lambda p: p.sites.partition == "one-label"),
    ("sites.only", 'sites.partition = "natural"', lambda p: p.sites.partition == "natural"),
    ("model.hidden", 'model.name = "mlp"', lambda p: p.model.name == "mlp"),
    (
        "model.activation",
        'model.name = "mlp", "mnist-cnn" or "nodule-cnn"',
        lambda p: p.model.name in ("mlp", "mnist-cnn", "nodule-cnn"),
    ),
    ("model.initial_source", "model.initial", lambda p: p.model.initial is not None),
    ("training.views", "training.augment other than none", lambda p: p.training.augment != "none"),
    ("training.ema_decay", 'training.keep = "ema"', lambda p: p.training.keep == "ema"),
    ("training.rounds", "a plan without phases, whose rounds add up", lambda p: not p.phases),
    (
        "training.local_epochs training.local_steps training.optimizer training.learning_rate training.momentum "
        "training.proximal_mu training.scaffold model.local_layers",
        'training.algorithm = "fedavg"',
        lambda p: p.training.algorithm == "fedavg",
    ),
    (
        "stack.parts stack.row_bound stack.ridge stack.pull",
        'training.algorithm = "stacking"',
        lambda p: p.training.algorithm == "stacking",
    ),
    (
        "stack.count stack.high_fraction",
        'stack.parts = "samples" or "features"',
        lambda p: p.stack.parts != "one",
    ),
    ("stack.importance stack.measured", 'stack.parts = "features"', lambda p: p.stack.parts == "features"),
    ("training.batch_size", 'training.batch = "fixed"', lambda p: p.training.batch == "fixed"),
    (
        "training.sampling_rate training.batch_cap",
        'training.batch = "poisson"',
        lambda p: p.training.batch == "poisson",
    ),
    (
        "training.server_momentum",
        'training.server_optimizer = "momentum", "adam", "yogi" or "dp-adam"',
        lambda p: p.training.server_optimizer in ("momentum", "adam", "yogi", "dp-adam"),
    ),
    (
        "training.server_beta2",
        'training.server_optimizer = "adam", "yogi" or "dp-adam"',
        lambda p: p.training.server_optimizer in ("adam", "yogi", "dp-adam"),
    ),
    (
        "training.server_tau",
        'training.server_optimizer = "adagrad", "adam" or "yogi"',
        lambda p: p.training.server_optimizer in ("adagrad", "adam", "yogi"),
    ),
    (
        "privacy.noise privacy.against privacy.epsilon privacy.noise_multiplier privacy.delta privacy.delta_reason "
        "privacy.clip_norm privacy.clipping ledger.max_epsilon",
        'privacy.unit = "record", "patient" or "site"',
        lambda p: p.privacy.unit != "none",
    ),
    (
        "privacy.target_quantile privacy.clip_learning_rate privacy.count_noise",
        'privacy.clipping = "adaptive"',
        lambda p: p.privacy.clipping == "adaptive",
    ),
    (
        "privacy.control_clip_norm",
        'privacy.unit = "site" and training.scaffold = true',
        lambda p: p.privacy.unit == "site" and p.training.scaffold,
    ),
    ("secure_sum.adversary", 'secure_sum.mode = "masks"', lambda p: p.secure_sum.mode == "masks"),
    ("secure_sum.dropouts", "secure_sum.mode other than none", lambda p: p.secure_sum.mode != "none"),
    (
        "secure_sum.colluders",
        'secure_sum.mode = "masks" or "rlwe"',
        lambda p: p.secure_sum.mode in ("masks", "rlwe", "paillier"),  # paillier has a rule that says why not
    ),
    (
        "secure_sum.range",
        "integers that no clip norm bounds (masks, rlwe or paillier, and noise other than distributed)",
        lambda p: on_a_given_grid(p),
    ),
    (
        "secure_sum.value_bits",
        "such integers, and no messages.quantize_bits",
        lambda p: on_a_given_grid(p) and p.messages.quantize_bits is None,
    ),
    ("secure_sum.key_bits", 'secure_sum.mode = "paillier"', lambda p: p.secure_sum.mode == "paillier"),
    ("secure_sum.policy", 'secure_sum.mode = "attested"', lambda p: p.secure_sum.mode == "attested"),
    (
        "aggregation.count",
        'aggregation.selection = "count" or "tilted"',
        lambda p: p.aggregation.selection in ("count", "tilted"),
    ),
    (
        "aggregation.fraction",
        'aggregation.selection = "fraction" or "poisson"',
        lambda p: p.aggregation.selection in ("fraction", "poisson"),
    ),
    (
        "aggregation.ready aggregation.max_staleness",
        'aggregation.mode = "two-phase" or "buffered"',
        lambda p: p.aggregation.mode != "synchronous",
    ),
    (
        "aggregation.max_participations",
        'such a mode, and privacy.unit = "record", "patient" or "site"',
        lambda p: p.aggregation.mode != "synchronous" and p.privacy.unit != "none",
    ),
    ("aggregation.tilt", 'aggregation.selection = "tilted"', lambda p: p.aggregation.selection == "tilted"),
    ("aggregation.alpha", 'aggregation.weights = "power"', lambda p: p.aggregation.weights == "power"),
    ("aggregation.cap", 'aggregation.weights = "capped"', lambda p: p.aggregation.weights == "capped"),
    (
        "evaluation.noise_multiplier",
        'evaluation.metrics = "charged"',
        lambda p: p.evaluation.metrics == "charged",
    ),
)


def unused_keys(plan: Plan) -> list[Problem]:
    """Return a problem for each key that differs from its default where nothing reads it."""
    return [
        Problem(
            f"plan key {key}",
            needs,
            "a plan where it has no effect",
            "Remove the key, or change the setting it needs",
        )
        for keys, needs, met in _RULES
        if not met(plan)
        for key in keys.split()
        if _is_set(plan, key)
    ]


def on_a_given_grid(plan: Plan) -> bool:
    """True if updates become integers by `secure_sum.range`: no noise, or noise of a site's own, is added before."""
    integers = plan.secure_sum.mode in ("masks", "rlwe", "paillier")
    return integers and (plan.privacy.unit == "none" or plan.privacy.noise != "distributed")


def _is_set(plan: Plan, key: str) -> bool:
    section_name, name = key.split(".")
    section: Any = getattr(plan, section_name)
    default = type(section).model_fields[name].get_default(call_default_factory=True)
    return bool(getattr(section, name) != default)
