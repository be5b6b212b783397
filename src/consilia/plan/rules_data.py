"""Rules on data and sites: what each kind of source and partition needs."""

from collections.abc import Iterator, Sequence

from consilia.core.errors import Problem
from consilia.plan.schema import Plan

BUILTIN = ("heart", "adult")  # published tables: nothing about them is secret
_OFFICIAL = ("adult", "npz")
_IMAGES = ("npz", "idx")


def data_rules(plan: Plan) -> list[Problem]:
    """Return the rules on [data] and [sites] that the plan breaks."""
    return [*_source(plan), *_columns(plan), *_features(plan), *_split(plan), *_partition(plan)]


def _required(key: str, value: object, setting: str, hint: str) -> Iterator[Problem]:
    if value is None or value == [] or value == {}:
        yield Problem(f"plan key {key}", f"a value with {setting}", "nothing", hint)


def _source(plan: Plan) -> Iterator[Problem]:
    data, setting = plan.data, f'data.source = "{plan.data.source}"'
    if data.source not in BUILTIN:
        yield from _required("data.path", data.path, setting, "Name the file, relative to the plan")
    if data.source == "idx":
        yield from _required("data.labels_path", data.labels_path, setting, "Name the file of labels")
    if data.source == "csv":
        yield from _required("data.label", data.label, setting, "Name the column to predict")
        yield from _required("data.classes", data.classes, setting, 'List the label\'s values: classes = ["no", "yes"]')
        if not data.numeric and not data.categories:
            yield Problem(
                "plan section data",
                f"data.numeric or data.categories with {setting}",
                "neither",
                "List the columns the model reads, with their public ranges or values",
            )


def _columns(plan: Plan) -> Iterator[Problem]:
    data = plan.data
    for column, (low, high) in data.numeric.items():
        if not low < high:
            yield Problem(
                f"plan key data.numeric.{column}",
                "a range [low, high] with low < high",
                f"[{low:g}, {high:g}]",
                "Write public limits, not the data's own",
            )
    for column, values in data.categories.items():
        yield from _distinct(f"data.categories.{column}", values, least=1)
    if data.classes:
        yield from _distinct("data.classes", data.classes, least=2)
    roles: dict[str, list[str]] = {}
    named = {"data.label": data.label, "data.id_column": data.id_column, "data.site_column": data.site_column}
    for role, name in named.items():
        if name is not None:
            roles.setdefault(name, []).append(role)
    for role, names in (("data.numeric", data.numeric), ("data.categories", data.categories)):
        for name in names:
            roles.setdefault(name, []).append(role)
    for name, found in roles.items():
        if len(found) > 1:
            yield Problem(
                f"plan keys {' and '.join(found)}",
                "different columns",
                f"the same column {name!r}",
                "Name each column once; a label among the inputs would be predicted from itself",
            )


def _distinct(key: str, values: Sequence[str], *, least: int) -> Iterator[Problem]:
    twice = sorted({value for value in values if values.count(value) > 1})
    if twice:
        yield Problem(f"plan key {key}", "values that differ", f"{twice[0]!r} twice", "Remove the repetition")
    elif len(values) < least:
        yield Problem(f"plan key {key}", f"at least {least} values", f"{len(values)}", "List all that can occur")


def _features(plan: Plan) -> Iterator[Problem]:
    data = plan.data
    if data.source in _IMAGES:
        return
    for key, value, plain in (("features", data.features, "raw"), ("normalise", data.normalise, "none")):
        if value != plain:
            needs, got = "a source of images", f'data.source = "{data.source}"'
            yield Problem(f'plan key data.{key} = "{value}"', needs, got, "Remove the key, or read npz or idx images")


def _split(plan: Plan) -> Iterator[Problem]:
    data = plan.data
    if data.split == "official" and data.source not in _OFFICIAL:
        yield Problem(
            'plan key data.split = "official"',
            "a source with its own test rows",
            f'data.source = "{data.source}"',
            'Use data.split = "hash" and a data.test_fraction',
        )
    held_out = data.split == "official" or data.test_fraction > 0
    if not held_out and plan.evaluation.metrics != "hidden":
        yield Problem(
            f'plan key evaluation.metrics = "{plan.evaluation.metrics}"',
            "held-out rows",
            "data.test_fraction = 0",
            'Set data.test_fraction, or evaluation.metrics = "hidden"',
        )


def _names_sites(plan: Plan) -> bool:
    """Whether a plan is for real sites, of which each has a file of its own."""
    return bool(plan.sites.only) or isinstance(plan.sites.counts, dict)


def _partition(plan: Plan) -> Iterator[Problem]:
    sites, setting = plan.sites, f'sites.partition = "{plan.sites.partition}"'
    if sites.partition == "natural":
        if plan.data.source == "csv":
            yield from _required(
                "data.site_column",
                plan.data.site_column,
                setting,
                'Name the column that tells the site, or set sites.partition = "iid" and sites.count',
            )
        elif plan.data.source != "heart" and not (plan.data.source in _IMAGES and _names_sites(plan)):
            yield Problem(
                f"plan key {setting}",
                "a source that names sites",
                f'data.source = "{plan.data.source}"',
                'Simulate sites: sites.partition = "iid" and sites.count = 5; of real ones, name each in sites.counts',
            )
        if sites.only is not None:
            yield from _distinct("sites.only", sites.only, least=1)
        return
    if not (sites.partition == "quantity-skew" and sites.sizes):
        yield from _required("sites.count", sites.count, setting, "Say how many sites to simulate: sites.count = 5")
    if sites.partition == "dirichlet":
        yield from _required(
            "sites.alpha", sites.alpha, setting, "Common values: 0.1 (very unequal) to 100 (nearly iid)"
        )
    if sites.partition == "quantity-skew" and (sites.alpha is None) == (not sites.sizes):
        yield Problem(
            "plan section sites",
            f"exactly one of sites.alpha and sites.sizes with {setting}",
            "neither" if sites.alpha is None else "both",
            "Give the exponent or the sizes",
        )
    if sites.sizes and sites.count is not None and sites.count != len(sites.sizes):
        yield Problem(
            "plan key sites.sizes",
            f"sites.count = {sites.count} sizes",
            f"{len(sites.sizes)}",
            "Remove sites.count, or list as many sizes",
        )
    if sites.partition == "one-label" and sites.count is not None and sites.one_label_sites >= sites.count:
        yield Problem(
            "plan key sites.one_label_sites",
            f"fewer than sites.count = {sites.count}",
            f"{sites.one_label_sites}",
            "Lower it",
        )
