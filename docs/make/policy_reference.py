"""Write docs/reference/policy.md from the schema of policies.

python docs/make/policy_reference.py
"""

from pathlib import Path

from docs.make.plan_reference import section_page

from consilia.plan.policy import Policy, policy_models

PAGE = Path(__file__).resolve().parents[1] / "reference" / "policy.md"
_HEAD = """\
# Policy

<!-- Written by docs/make/policy_reference.py; a test holds it to the schema. -->

`policy.toml` is what a site agrees to, written by its data steward and read anew for each plan. Unknown keys are errors. A site
without the file does not start. The defaults are what an empty file means; [site-policy.md](../howto/site-policy.md) says how
to choose. `consilia site policy` checks the file and shows what it means.

Where words are in an order (`record < patient`), a plan passes that asks for the key's word or a later one. `inf` is a number in
TOML.
"""


def page() -> str:
    """Return the page's text."""
    schema = Policy.model_json_schema()
    models = policy_models()
    return "\n".join(
        [_HEAD, *(section_page(name, entry, schema, models) for name, entry in schema["properties"].items())]
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
