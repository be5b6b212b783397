"""A secure sum in words: what the coordinator sees, who must answer, and what the mode does not protect."""

from collections.abc import Mapping

from consilia.crypto.paillier_key import LIMIT
from consilia.plan.facts import Facts
from consilia.plan.secure_facts import SecureFacts
from consilia.report.mechanism import Group, Row
from consilia.report.numbers import plain
from consilia.secagg.params import most_colluders

MODES: Mapping[str, str] = {
    "masks": "each update is hidden by masks that cancel in the sum",
    "rlwe": "updates are encrypted under a key that no one holds; sites open their sum together",
    "paillier": "updates are encrypted under one key that every site holds, and the coordinator does not",
    "attested": "updates are sealed to code at the coordinator whose measurement each site has verified",
}
RECOMPUTED = "nothing is hidden in the reproducible mode: anyone can recompute the keys of its sums"
_SHAPE: Mapping[str, str] = {"masks": "masked", "rlwe": "encrypted", "paillier": "encrypted", "attested": "sealed"}


def shape(secure: SecureFacts) -> str:
    """Return what an update is when it leaves: "masked", "encrypted" or "sealed"."""
    return _SHAPE[secure["mode"]]


def follows(secure: SecureFacts) -> bool:
    """True if the claim needs a coordinator that follows the protocol."""
    return secure["mode"] == "masks" and secure["adversary"] == "passive"


def secure_group(facts: Facts) -> tuple[Group, ...]:
    """Return the card's lines on the secure sum, if there is one."""
    secure = facts["secure"]
    if secure is None:
        return ()
    if facts["reproducible"]:
        return (Group("Secure sum", (Row("Secure sum", secure["mode"], RECOMPUTED),)),)
    rows = [
        Row("Secure sum", secure["mode"], MODES[secure["mode"]]),
        Row("Answers of a round", f"at least {secure['fewest']} of {secure['cohort']}", "with fewer no sum is opened"),
        Row("Who opens a sum", *_opens(secure)),
    ]
    if secure["mode"] == "masks":
        rows.append(
            Row("Colluding sites tolerated", plain(secure["colluders"]),
                "that may pool what they know with the coordinator" if secure["colluders"]
                else "no site may pool what it knows with the coordinator"),
        )  # fmt: skip
    if secure["mode"] in ("masks", "rlwe"):
        rows.append(
            Row("Coordinator", "must follow the protocol" if follows(secure) else "may send anything",
                "sites check what they are sent against the plan, and stop where it differs"),
        )  # fmt: skip
    if secure["ring_bits"] is not None:
        room = "there is room for every site" + (" and all noise" if secure["distributed"] else "")
        rows.append(Row("Arithmetic", f"integers of {secure['ring_bits']} bits", f"sums are exact; {room}"))
    if secure["distributed"]:
        rows.append(Row("Price of dropouts and colluders", *price(secure)))
    return (Group("Secure sum", tuple(rows)),)


def price(secure: SecureFacts) -> tuple[str, str]:
    """Return how much more noise a sum has than planned when every site answers, and why."""
    spare = f"{secure['dropouts']} + {secure['colluders']} of {secure['cohort']} tolerated"
    if secure["excess"] == 1:
        return "none", f"{spare}: every share of the noise is needed, and none is to spare"
    return (
        f"{plain(secure['excess'])} times the variance",
        f"{spare}: {secure['honest']} shares carry the whole noise, and {secure['cohort']} are added when all answer",
    )


def _opens(secure: SecureFacts) -> tuple[str, str]:
    match secure["mode"]:
        case "paillier":
            return "any one site", "together with the coordinator it would decrypt every single update"
        case "attested":
            return "the attested code", "nobody else, as far as the machine keeps its memory to itself"
    many = secure["cohort"]
    alone = "the coordinator alone cannot open one update; with a site that breaks the protocol it can"
    if secure["mode"] == "masks":
        # Survivors who are left of all but two read the other off the sum, whatever the keys.
        few = min(most_colluders(secure["adversary"], many), secure["fewest"] - 2)
        alone = f"the coordinator with {few} of them opens no single update" if few else "the coordinator alone cannot"
    return f"{secure['threshold']} of {many} sites together", alone


def secure_limits(facts: Facts) -> list[str]:
    """Return what a plan's secure sum does not protect, each as "topic: what is not covered"."""
    secure = facts["secure"]
    if secure is None:
        return []
    points = _ways_in(secure)
    if facts["unit"] == "none" or facts["epsilon"] is None:
        points.append(
            f"What a sum itself says: no single update is seen, but the sum of {secure['fewest']} sites or more is, without "
            "noise. Only noise bounds what it tells of one record."
        )
        points.append(
            "Sums of two rounds held side by side: where a site is in one of them only and the model has hardly moved, they "
            "differ by about its update."
        )
    return points


def _ways_in(secure: SecureFacts) -> list[str]:
    many, needs = secure["cohort"], secure["threshold"]
    match secure["mode"]:
        case "masks":
            points = [f"A coordinator together with {needs} or more of the {many} sites: they open any site's update."]
        case "rlwe":
            points = [
                f"A coordinator together with {needs} or more of the {many} sites: they hold the key.",
                "A coordinator that breaks the protocol together with a site: the two can have a sum opened that another "
                "site's update is alone in.",
                "A site that lies when it helps to open a sum: the sum may come out wrong.",
            ]
        case "paillier":
            points = [
                LIMIT,
                "A site that lies about the sum it decrypted: the sum may come out wrong.",
            ]
        case _:
            points = [
                "The machine that runs the attested code: evidence says which code was measured when it was made. A TPM, "
                "above all one in software, does not shield memory from whoever runs the machine; enclaves shield it, apart "
                "from side channels and faults of the processor.",
                "Faults of the attested code: it sees every single update.",
                "An operator that feeds it: which answers reach the code, in what order, and the model and state that it starts "
                "from are the operator's choice.",
            ]
    if secure["mode"] == "masks" and secure["adversary"] == "passive":
        points.append("A coordinator that breaks the protocol: the plan says that it follows it.")
    return points
