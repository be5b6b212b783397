"""One wording for every fault."""

import pytest

from consilia.core.errors import ConsiliaError, PlanError, Problem


@pytest.mark.parametrize(
    ("hint", "end"),
    [
        ("Lower it", " Lower it."),
        ("Lower it.", " Lower it."),
        ("Did you mean data.split?", " Did you mean data.split?"),
        ("", ""),
    ],
)
def test_a_problem_is_a_sentence_with_one_full_stop(hint: str, end: str) -> None:
    assert str(Problem("plan key a.b", "a number", "text", hint)) == f"plan key a.b needs a number; got text.{end}"


def test_an_error_carries_every_problem() -> None:
    problems = [Problem("x", "1", "2", ""), Problem("y", "3", "4", "")]
    error = PlanError(problems)
    assert error.problems == tuple(problems)
    assert str(error).count("\n") == 1
    assert (error.exit_code, ConsiliaError.exit_code) == (2, 1)
