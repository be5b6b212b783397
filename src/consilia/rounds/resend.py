"""An answer that was sealed before: it is sent again as it is, or not at all."""

from consilia.core.errors import ProtocolError
from consilia.core.update import ProtocolMessage, Release
from consilia.core.wire import decode
from consilia.store.kept import Sealed


def again(sealed: Sealed, task: ProtocolMessage, model_digest: str, *, who: str) -> bytes:
    """Return a round's sealed answer for a task that asks for it again.

    Args:
        sealed: What the site's store has for the round.
        task: The task.
        model_digest: The model that came with it.
        who: The site, for errors.

    Raises:
        ProtocolError: If the task has another model, or is of another session of secure sums.
    """
    if sealed.model_digest != model_digest:
        raise ProtocolError.of(who, needs=f"the model it answered in round {task.round}", got="another model",
                               hint="A round has one model; start a new run for another")  # fmt: skip
    item = decode(sealed.release, who="the sealed release")
    if isinstance(item, Release) and item.metrics.get("session") != task.body.get("session"):
        # Two sums with one answer of this site in each would give away what they differ by.
        raise ProtocolError.of(who, needs=f"the session it answered in round {task.round}", got="another one",
                               hint="A site's answer is in one sum and no other; go on with the next round")  # fmt: skip
    return sealed.release
