"""What a site agrees to: `policy.toml`, written by its data steward. Absent keys are strict."""

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from consilia.core.errors import PlanError, PolicyError
from consilia.plan.faults import Form, problems_of
from consilia.plan.load import read_text
from consilia.plan.values import Count, Name, Rounds, Section

Limit = Annotated[float, Field(gt=0, allow_inf_nan=True)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Mode = Literal["none", "masks", "rlwe", "paillier", "attested"]
_MODES: tuple[Mode, ...] = ("none", "masks", "rlwe")


class ApprovalSection(Section):
    """Which plans a steward must see before the site takes part."""

    mode: Literal["always", "unless-listed", "never"] = Field(
        "always",
        description="always: each plan waits for `consilia site approve`; unless-listed: except those below; never: whatever "
        "the other clauses let through runs.",
    )
    digests: list[Digest] = Field(
        default_factory=list, description="unless-listed: digests of plans that need no approval of their own."
    )


class SitesSection(Section):
    """How many others take part."""

    least: Count = Field(3, description="Fewest sites in a plan, this one included.")
    least_answers: Count = Field(
        1, description="Fewest sites in whatever the coordinator opens; above 1 only secure sums will do."
    )


class DataSection(Section):
    """Which data sets and columns may be used."""

    sets: list[Name] | None = Field(
        None, description="Data sets by the name that ledgers know them by; all that site.toml names when absent."
    )
    public: list[Name] = Field(
        default_factory=list,
        description="Data sets whose rows are public: reproducible runs may use them. Built-in tables always are.",
    )
    features: list[str] | None = Field(
        None, description="csv: columns that a model may be given; all of the file when absent."
    )
    labels: list[str] | None = Field(None, description="csv: columns that a model may predict; any when absent.")


class ModelSection(Section):
    """Which models may be trained here."""

    names: list[str] | None = Field(
        None, description="By name, installed factories as module:factory; all that come with Consilia when absent."
    )


class TrainingSection(Section):
    """How long a run may be."""

    max_rounds: Rounds = Field(1000, description="Most rounds of one plan.")


class PrivacySection(Section):
    """What must protect the rows, and how much may be spent."""

    unit: Literal["none", "record", "patient", "site"] = Field(
        "record",
        description="Least unit of privacy, of none < record < patient < site; none: no differential privacy is asked for. "
        "site protects the whole answer of a site, and one record in it at twice that epsilon.",
    )
    against: Literal["world", "server", "server+colluding-sites"] = Field(
        "server", description="The adversary that a plan must claim its epsilon against, or a stronger one."
    )
    max_epsilon_run: Limit = Field(
        1.0, description="Largest epsilon of one run for this site; inf: no bound is asked for."
    )
    max_epsilon_set: Limit = Field(
        3.0, description="Largest sum of epsilon over all runs of one data set; inf: no bound is asked for."
    )
    max_epsilon_sets: dict[Name, Limit] = Field(
        default_factory=dict, description="Data sets that have another sum: name -> epsilon."
    )
    max_delta: Annotated[float, Field(gt=0, lt=1)] = Field(
        1e-5, description="Largest delta of one run; not asked where max_epsilon_run is inf."
    )
    noise: Literal["server", "distributed", "site"] = Field(
        "distributed",
        description="Most trusting place to draw the noise, of server < distributed < site: by the coordinator, in shares "
        "under a secure sum, by the site itself.",
    )
    reproducible: bool = Field(
        False,
        description="Whether runs whose noise anyone can recompute may use data that is not public; they count as epsilon inf.",
    )


class SecureSumSection(Section):
    """What the coordinator may see of this site's own answers."""

    modes: list[Mode] = Field(
        default_factory=lambda: list(_MODES),
        description="Secure sums that will do. With none among them all do, except where noise in shares counts on the sum.",
    )
    passive: bool = Field(
        False,
        description="Whether a sum by masks may count on a coordinator that follows the protocol, as one whose key was stolen "
        "does not.",
    )


class EvaluationSection(Section):
    """What may be told of held-out rows."""

    metrics: Literal["public", "charged", "hidden"] = Field(
        "charged",
        description="The most that may leave, of public < charged < hidden: exact figures, figures with noise, none.",
    )


class Policy(Section):
    """All that a site agrees to. A plan must keep every clause; an empty file is the strictest that still lets work be done."""

    approval: ApprovalSection = Field(default_factory=ApprovalSection)
    sites: SitesSection = Field(default_factory=SitesSection)
    data: DataSection = Field(default_factory=DataSection)
    model: ModelSection = Field(default_factory=ModelSection)
    training: TrainingSection = Field(default_factory=TrainingSection)
    privacy: PrivacySection = Field(default_factory=PrivacySection)
    secure_sum: SecureSumSection = Field(default_factory=SecureSumSection)
    evaluation: EvaluationSection = Field(default_factory=EvaluationSection)

    @classmethod
    def read(cls, path: Path) -> "Policy":
        """Read a policy from its file.

        Raises:
            PolicyError: With every fault of the file; also where there is none: silence is no consent.
        """
        try:
            return cls.from_text(read_text(path, "policy", _START, blank=True), name=str(path))
        except PlanError as error:
            raise PolicyError(error.problems) from None

    @classmethod
    def from_text(cls, text: str, *, name: str = "policy") -> "Policy":
        """Read a policy from TOML text.

        Raises:
            PlanError: With every fault of its keys.
        """
        try:
            raw = tomllib.loads(text)
            return cls.model_validate_json(json.dumps(raw, default=str), strict=True)
        except ValidationError as error:
            raise PlanError(problems_of(error.errors(include_url=False), POLICY)) from None
        except (ValueError, RecursionError) as error:
            raise PlanError.of(f"policy file {name}", needs="TOML", got=f"{error}" or type(error).__name__,
                               hint='Lines look like  key = 0.3  or  key = ["text"], below a [section]') from None  # fmt: skip

    def limit(self, data_set: str) -> float:
        """Return the epsilon that all runs of a data set may sum up to; infinity where no bound is asked for."""
        return self.privacy.max_epsilon_sets.get(data_set, self.privacy.max_epsilon_set)


def policy_models() -> dict[str, type[BaseModel]]:
    """Return the model of each section."""
    found: dict[str, type[BaseModel]] = {}
    for name, field in Policy.model_fields.items():
        kind: Any = field.annotation
        found[name] = kind
    return found


POLICY = Form("policy", "policies", policy_models())
_START = "A site takes part in nothing without one; `consilia site init` writes one that is strict"
