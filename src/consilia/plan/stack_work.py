"""From the plan's [stack] section to one site's work; both ends compute it from public numbers."""

from consilia.learning.stacking.shape import StackShape, feature_blocks, one_model, sample_parts
from consilia.learning.stacking.work import StackWork
from consilia.plan.schema import Plan


def stack_shape(plan: Plan, width: int) -> StackShape:
    """Return the stack's shape for rows of `width` numbers.

    Raises:
        PlanError: If there are more blocks than columns.
    """
    parts, count = plan.stack.parts, plan.stack.count or 0
    if parts == "one":
        return one_model(width)
    return sample_parts(width, count) if parts == "samples" else feature_blocks(width, count)


def stack_work(plan: Plan, shape: StackShape, rows: int) -> StackWork:
    """Return the work of a site with so many registered rows.

    Raises:
        PlanError: If the section's numbers do not suit the shape.
    """
    stack, privacy = plan.stack, plan.privacy
    return StackWork(
        shape, privacy.epsilon or 0.0, rows, ridge=stack.ridge, row_bound=stack.row_bound,
        importance=tuple(stack.importance) if stack.importance else None, measured=stack.measured,
        high_fraction=stack.high_fraction, pull=stack.pull, delta=privacy.delta or 0.0,
    )  # fmt: skip
