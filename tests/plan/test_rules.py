from collections.abc import Callable

import pytest

Problems = Callable[..., list[str]]

CSV = """
[data]
source = "csv"
path = "x.csv"
label = "y"
classes = ["no", "yes"]
numeric = { age = [0, 100] }
categories = { sex = ["f", "m"] }
site_column = "hospital"
[training]
batch_size = 32
"""
FEDAVG = ("training.algorithm=fedavg", "training.local_epochs=1")
OPEN = '[data]\nsource = "heart"\n[training]\nbatch_size = 32\n'


@pytest.mark.parametrize(
    ("changes", "who", "words"),
    [
        # What a claim needs.
        (["privacy.unit=patient"], "plan key privacy.unit", "rows that name their patient"),
        (["privacy.noise=distributed"], "privacy.noise", "a secure sum"),
        (["privacy.noise=server", *FEDAVG], "privacy.noise", "one clipped sum a round"),
        (["privacy.noise=server", "privacy.against=server"], "privacy.against", "before the server sees a sum"),
        (["training.sampling_rate=0.1"], "training.sampling_rate", 'training.batch = "poisson"'),
        (["training.batch=fixed", "training.batch_size=8", "training.sampling_rate=0.1"], "training.sampling_rate",
         'training.batch = "poisson"'),
        (["training.batch=poisson"], "training.sampling_rate", "nothing"),
        ([*FEDAVG, "model.local_layers=norm"], "model.local_layers", "GroupNorm"),
        ([*FEDAVG, "model.local_layers=head"], "model.local_layers", 'privacy.unit = "none" or "site"'),
        ([*FEDAVG, "privacy.unit=site", "training.scaffold=true"], "privacy.control_clip_norm", "bound its change"),
        (["privacy.control_clip_norm=1"], "privacy.control_clip_norm", "no effect"),
        (["ledger.max_epsilon=0.5"], "privacy.epsilon", "at most ledger.max_epsilon = 0.5"),
        (["ledger.max_epsilon=5", "run.reproducible=true"], "run.reproducible", "no limit covers"),
        (["privacy.delta=1e-3"], "privacy.delta", "privacy.delta_reason"),
        (["privacy.delta=1e-3", 'privacy.delta_reason="  "'], "privacy.delta", "privacy.delta_reason"),
        # Metrics of held-out rows.
        (["training.keep=best"], "training.keep", 'evaluation.metrics = "public" or "charged"'),
        (["training.patience=3"], "training.patience", 'evaluation.metrics = "public" or "charged"'),
        (["evaluation.metrics=charged"], "evaluation.noise_multiplier", "nothing"),
        (["evaluation.metrics=charged", "evaluation.noise_multiplier=5", "privacy.unit=site"], "evaluation.metrics",
         'privacy.unit = "record"'),
        (["evaluation.metrics=charged", "evaluation.noise_multiplier=0.5"], "evaluation.noise_multiplier", "alone"),
        (["evaluation.metrics=public", "data.test_fraction=0"], "evaluation.metrics", "held-out rows"),
        # Keys that contradict each other or have no effect.
        ([*FEDAVG, "training.local_steps=3"], "plan section training", "only one of"),
        (["training.local_epochs=2"], "training.local_epochs", 'training.algorithm = "fedavg"'),
        (["training.momentum=0.9"], "training.momentum", 'training.algorithm = "fedavg"'),
        (["training.proximal_mu=0.1"], "training.proximal_mu", 'training.algorithm = "fedavg"'),
        ([*FEDAVG, "training.optimizer=adam", "training.momentum=0.9"], "training.momentum", "adam"),
        ([*FEDAVG, "training.scaffold=true", "training.momentum=0.9"], "training.scaffold", "plain steps"),
        (["training.batch=fixed"], "training.batch_size", "nothing"),
        (["training.batch_size=8"], "training.batch_size", 'training.batch = "fixed"'),
        (["training.server_momentum=0.5"], "training.server_momentum", "no effect"),
        (["model.hidden=[8]"], "model.hidden", 'model.name = "mlp"'),
        (["data.split=official"], "data.split", "its own test rows"),
        (["data.path=x.csv"], "data.path", "no effect"),
        (["sites.count=3"], "sites.count", "no effect"),
        (["sites.partition=iid"], "sites.count", "nothing"),
        (["sites.partition=dirichlet", "sites.count=4"], "sites.alpha", "nothing"),
        (["sites.partition=quantity-skew", "sites.count=4"], "plan section sites", "exactly one of"),
        (["sites.partition=quantity-skew", "sites.count=4", "sites.sizes=[1, 2]"], "sites.sizes", "4 sizes"),
        (["sites.partition=one-label", "sites.count=4", "sites.one_label_sites=4"], "sites.one_label_sites", "fewer"),
        (["sites.only=['A', 'A']"], "sites.only", "twice"),
        (["data.features=scattering"], 'data.features = "scattering"', "a source of images"),
        (["data.normalise=group"], 'data.normalise = "group"', "a source of images"),
        (["data.source=adult"], "sites.partition", "Simulate sites"),
        (["aggregation.selection=count"], "aggregation.count", "nothing"),
        (["aggregation.selection=count", "aggregation.count=5"], "aggregation.count", "at most the 4 sites"),
        (["aggregation.selection=fraction"], "aggregation.fraction", "nothing"),
        (["aggregation.count=2"], "aggregation.count", "no effect"),
        (["aggregation.weights=capped"], "aggregation.cap", "nothing"),
        (["aggregation.cap=5"], "aggregation.cap", "no effect"),
        (["aggregation.quorum=1.5"], "aggregation.quorum", "whole number"),
        (["aggregation.quorum=5"], "aggregation.quorum", "at most the 4 sites"),
        (["aggregation.selection=count", "aggregation.count=2", "aggregation.quorum=3"], "aggregation.quorum",
         "at most the 2 sites"),
        # Registered counts.
        (["sites.counts={A=199, B=172, C=30}"], "sites.counts", "a number for site D"),
        (["sites.counts={A=199, B=172, C=30, D=85, E=4}"], "sites.counts.E", "unknown name"),
        (["sites.counts={A=199, B=172, C=29, D=85}"], "sites.counts.C", "an upper bound"),
        (["sites.counts={A=199, B=172, C=40, D=85}", "training.batch=fixed", "training.batch_size=8"], "sites.counts.C",
         "the exact number of rows"),
    ],
)  # fmt: skip
def test_a_broken_rule_gives_one_message(problems: Problems, changes: list[str], who: str, words: str) -> None:
    found = problems(*changes)
    assert len(found) == 1, found
    assert who in found[0]
    assert words in found[0]
    assert not found[0].endswith(". .")


@pytest.mark.parametrize("key", ["delta", "clip_norm", "epsilon"])
def test_a_claim_lacks_no_number(problems: Problems, private: str, key: str) -> None:
    lines = [line for line in private.splitlines() if not line.startswith(key)]
    (found,) = problems(text="\n".join(lines))
    assert f"privacy.{key}" in found


@pytest.mark.parametrize(
    "change",
    ["privacy.epsilon=1", "privacy.noise_multiplier=1", "privacy.delta=1e-5", "privacy.clip_norm=1", "privacy.noise=server",
     "privacy.against=world", "privacy.delta_reason=x", "ledger.max_epsilon=1"],
)  # fmt: skip
def test_numbers_of_a_claim_without_a_unit_are_refused(problems: Problems, change: str) -> None:
    (found,) = problems(change, text=OPEN)
    assert change.split("=")[0] in found
    assert "privacy.unit" in found


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["data.numeric={age=[5, 5]}"], "low < high"),
        (["data.categories={sex=['f', 'f']}"], "twice"),
        (["data.categories={sex=[]}"], "at least 1"),
        (["data.classes=['yes']"], "at least 2"),
        (["data.label=age"], "the same column 'age'"),
        (["data.site_column=sex"], "the same column 'sex'"),
        (["data.numeric={}", "data.categories={}"], "neither"),
        (["data.labels_path=y"], 'data.source = "idx"'),
    ],
)
def test_columns_of_a_csv_are_checked(problems: Problems, changes: list[str], words: str) -> None:
    (found,) = problems(*changes, text=CSV)
    assert words in found


def test_a_csv_needs_its_keys(problems: Problems) -> None:
    found = problems(text='[data]\nsource = "csv"\n[training]\nbatch_size = 32\n')
    assert len(found) == 5
    for key in ("data.path", "data.label", "data.classes", "data.numeric", "data.site_column"):
        assert any(key in text for text in found)


def test_a_claim_on_private_data_needs_registered_counts_and_a_stable_split(problems: Problems) -> None:
    private = (
        CSV
        + 'batch = "full"\nalgorithm = "fedsgd"\n[privacy]\nunit = "record"\nepsilon = 1\ndelta = 1e-5\nclip_norm = 1\n'
    )
    private = private.replace("batch_size = 32\n", "")
    good = ("sites.counts=public", "sites.population=p", "data.id_column=id")
    assert problems(*good, text=private) == []
    assert problems(*good[:2], "data.patient_column=person", text=private) == []
    assert problems(*good[:2], "data.test_fraction=0", text=private) == []
    (found,) = problems(*good[1:], text=private)
    assert "plan key sites.counts" in found
    (found,) = problems(*good[:2], text=private)
    assert "plan key data.id_column" in found
    (found,) = problems(*good, "data.split=exact", text=private)
    assert "data.split" in found
    (found,) = problems(*good, "data.train_rows=100", text=private)
    assert "data.train_rows" in found
    # For a whole site every row may move; what names its people must still be said.
    (found,) = problems(*good[::2], "privacy.unit=site", text=private)
    assert "plan key sites.population" in found
    assert problems(*good[:2], "privacy.unit=site", "data.split=exact", text=private) == []
    unprotected = "\n".join(
        line for line in private.splitlines() if not line.startswith(("epsilon", "delta", "clip_norm"))
    )
    assert problems("privacy.unit=none", "data.split=exact", text=unprotected) == []


@pytest.mark.parametrize("source", ["npz", "idx"])
def test_a_claim_on_images_of_ones_own_needs_a_list_of_classes_and_a_split_that_stays(
    problems: Problems, private: str, source: str
) -> None:
    changes = [
        "data.path=x", f"data.source={source}", "sites.partition=iid", "sites.count=4", "sites.counts=public",
        "sites.population=p", "data.split=hash", *(["data.labels_path=y"] if source == "idx" else []),
    ]  # fmt: skip
    named = [*changes, "data.classes=['a', 'b']"]
    (found,) = problems(*named, text=private)
    assert 'plan key data.split = "hash"' in found
    assert problems(*named, "data.test_fraction=0", text=private) == []
    (found,) = problems(*changes, "data.test_fraction=0", text=private)
    assert "plan key data.classes" in found
    if source == "npz":
        assert problems(*named, "data.split=official", text=private) == []


def test_rules_counts_and_findings_of_others_come_together(problems: Problems) -> None:
    found = problems("privacy.noise=distributed", "aggregation.quorum=9", "privacy.delta=0.01",
                     "sites.counts={A=1}", "training.patience=2")  # fmt: skip
    assert len(found) == 8
    for words in ("secure sum", "quorum", "privacy.delta", "site B", "site C", "site D", "upper bound", "patience"):
        assert any(words in text for text in found)


def test_a_good_plan_breaks_no_rule(problems: Problems) -> None:
    assert problems() == []
    assert problems(text=OPEN) == []
    assert problems(text=CSV) == []
