"""GroupNorm with groups that leave something over."""

from torch import nn

from consilia.core.errors import PlanError, Problem


def group_norm(channels: int, groups: int = 8) -> nn.GroupNorm:
    """Return GroupNorm over equal groups of at least two channels.

    Raises:
        PlanError: If the groups are not equal, or of one channel: where a map has shrunk to one pixel, or is a vector from the
            start, that channel minus its own mean is zero, and the layer erases its input.
    """
    faults = [
        Problem(f"GroupNorm of {channels} channels", needs, f"{groups} groups", hint)
        for sound, needs, hint in (
            (groups >= 1 and channels % max(groups, 1) == 0, "a number of groups that divides them", "Choose another"),
            (2 * groups <= channels, "groups of at least two channels", "Make it fewer groups, or more channels"),
        )
        if not sound
    ]
    if faults:
        raise PlanError(faults)
    return nn.GroupNorm(groups, channels)
