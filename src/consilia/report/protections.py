"""What each protection adds in a plan, and what it does not: more layers are not more security."""

from collections.abc import Iterator, Mapping

from consilia.plan.facts import Facts
from consilia.plan.secure_facts import SecureFacts
from consilia.report.mechanism import Group, Row
from consilia.report.numbers import bound, plain
from consilia.report.phases import without_noise

TITLE = "What each protection adds"
_LIMIT: Mapping[str, str] = {
    "paillier": ", unless a single site sides with it",
    "attested": ", as far as the attested code and its machine can be trusted",
}


def protections(facts: Facts) -> Group:
    """Return a line for each protection of a plan: what it adds, and what it does not."""
    return Group(TITLE, (_noise(facts), *_sum(facts), *_small(facts)))


def _noise(facts: Facts) -> Row:
    unit, noise = facts["unit"], facts["noise"]
    if unit == "none":
        return Row("Noise", "none", "nothing bounds what the released model tells of a record")
    if facts["reproducible"]:
        return Row("Noise", "nothing: anyone can recompute it", "it shows what private training would cost in accuracy")
    if facts["epsilon"] is None:
        return Row("Noise", "no bound on the whole run", f"{without_noise(facts)} add none")
    adds = f"epsilon {bound(facts['epsilon'])} for one {unit}"
    if noise == "server":
        return Row("Noise at the coordinator", f"{adds}, against whoever sees only the models",
                   "nothing holds against the coordinator, which sees what it adds the noise to")  # fmt: skip
    if noise == "distributed":
        return Row("Noise in shares", f"{adds}, also against the coordinator",
                   "one share alone is too little noise: the secure sum has to hide each update")  # fmt: skip
    return Row("Noise at each site", f"{adds}, against everyone, the coordinator included",
               "more sites make it no cheaper: each adds all the noise that it needs by itself")  # fmt: skip


def _sum(facts: Facts) -> Iterator[Row]:
    secure = facts["secure"]
    if secure is None:
        return
    unseen = f"the coordinator sees no site's update, norm, loss or metrics, only sums{_LIMIT.get(secure['mode'], '')}"
    label = f"Secure sum ({secure['mode']})"
    if facts["reproducible"]:
        yield Row(label, "nothing: anyone can recompute its keys", "it shows what the sum costs")
        return
    if facts["unit"] == "none":
        yield Row(label, unseen, "it gives no epsilon: nothing bounds what sums or the released model tell")
    elif secure["distributed"]:
        yield Row(label, f"{unseen}; so sites can share one draw of noise", _shared(secure))
    elif facts["noise"] == "server":
        yield Row(label, unseen,
                  "it gives no epsilon against the coordinator: what adds the noise inside is trusted")  # fmt: skip
    else:
        yield Row(label, unseen, "it makes epsilon no smaller: each update carries enough noise of its own. With "
                  'privacy.noise = "distributed" the same epsilon takes less noise')  # fmt: skip


def _shared(secure: SecureFacts) -> str:
    part = f"about 1/{secure['honest']} of the variance"
    return f"it makes epsilon no smaller, but the noise: {part} that the sum would have if each site protected itself alone"


def _small(facts: Facts) -> Iterator[Row]:
    messages = facts["messages"]
    ways = [
        f"{plain(messages['quantize_bits'])} bits a number" if messages["quantize_bits"] is not None else "",
        f"{plain(messages['kept'])} of {plain(facts['parameters'])} numbers"
        if messages["random_k"] is not None or messages["top_k"] is not None
        else "",
    ]
    shown = ", ".join(filter(None, ways))
    if shown:
        yield Row(
            "Small messages",
            f"fewer bytes: {shown}",
            "they add no privacy: neither rounding nor leaving out is counted as noise",
        )
