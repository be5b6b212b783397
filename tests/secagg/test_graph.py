"""Who neighbours whom above a hundred sites: sizes against a table worked out apart, and what the sizes promise."""

from hashlib import sha256
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import hypergeom
from tests.secagg.consortium import Run, refusals, revealed, session, starts

from consilia.secagg import client, server
from consilia.secagg import graph as graphs
from consilia.secagg.graph import AVAILABILITY, FULL_UP_TO, PRIVACY, Graph, least, neighbourhood
from consilia.secagg.messages import Adverts, Begin, Survivors, ToSite
from consilia.secagg.params import Session

# (k, t) by the two hypergeometric tails alone, against a passive coordinator; a third is the largest share of colluders.
TABLE = {
    100: {(5, 5): (12, 7), (10, 10): (22, 12), (20, 20): (40, 21), (33, 10): (42, 32), (10, 30): (60, 31)},
    1000: {(5, 5): (30, 17), (10, 10): (46, 26), (20, 20): (98, 54), (33, 10): (102, 72), (10, 30): (174, 88)},
    10000: {(5, 5): (34, 20), (10, 10): (54, 30), (20, 20): (120, 65), (33, 10): (126, 88), (10, 30): (232, 117)},
}


def part(percent: int, count: int) -> int:
    return count // 3 if percent == 33 else count * percent // 100


@pytest.mark.parametrize("count", TABLE)
def test_neighbours_and_thresholds_of_the_table(count: int) -> None:
    """The condition that survivors hang together asks for no more in any of these rows."""
    for (colluding, dropping), expected in TABLE[count].items():
        assert least(count, part(colluding, count), part(dropping, count), "passive", count - 2) == expected


@pytest.mark.parametrize(("count", "degree", "gone"), [(24, 4, 12), (30, 4, 12), (20, 6, 12)])
def test_survivors_fall_apart_no_more_often_than_is_said(count: int, degree: int, gone: int) -> None:
    """A random ring is a random choice of who is gone on a fixed one."""
    rng, names = np.random.default_rng(0), tuple(f"site-{i:03d}" for i in range(count))
    graph = Graph(names, degree // 2 + 1, names, degree)
    apart = np.mean([pieces(graph, set(names[i] for i in rng.permutation(count)[gone:])) > 1 for _ in range(3000)])
    bound = graphs._falls_apart(count, 0, gone, degree, degree // 2 + 1, "passive")
    assert 0.0 < apart <= bound
    assert bound < 20 * apart + 0.1  # and is of some use


def count_tails(count: int, colluders: int, dropouts: int, degree: int, threshold: int) -> bool:
    few = count * graphs._tail(count - 1, colluders, degree, threshold) <= PRIVACY
    return few and count * graphs._tail(count - 1, dropouts, degree, degree - threshold + 1) <= AVAILABILITY


@pytest.mark.parametrize(("count", "colluders", "dropouts"), [(300, 15, 30), (1000, 100, 100), (500, 50, 50)])
def test_an_active_coordinator_needs_larger_neighbourhoods_with_two_thirds(
    count: int, colluders: int, dropouts: int
) -> None:
    passive, active = (least(count, colluders, dropouts, kind, count // 2) for kind in ("passive", "active"))
    assert passive is not None
    assert active is not None
    assert active[0] > passive[0]
    assert active[1] >= 2 * active[0] // 3 + 1
    for size in (active, passive):
        assert count_tails(count, colluders, dropouts, *size)


@pytest.mark.parametrize(
    ("count", "colluders", "dropouts", "size"), [(300, 15, 15, (60, 41)), (1000, 100, 100, (150, 101))]
)
def test_an_active_coordinator_finds_no_two_gaps(
    count: int, colluders: int, dropouts: int, size: tuple[int, int]
) -> None:
    """Two stretches of half a neighbourhood, each with enough colluders to open the sites beside it."""
    assert least(count, colluders, dropouts, "active", count // 2) == size

    def apart(degree: int) -> float:
        enough = 2 * degree // 3 + 1 - degree // 2
        return float(count**2 / 2 * hypergeom.sf(enough - 1, count, colluders, degree // 2) ** 2)

    assert apart(size[0]) <= PRIVACY < min(apart(size[0] - 2), apart(size[0] - 6))


def test_too_many_colluders_for_any_sparse_graph() -> None:
    assert least(200, 66, 20, "active", 198) is None


def test_the_full_graph_where_half_of_the_others_are_not_enough_and_up_to_a_hundred_sites() -> None:
    assert least(500, 50, 150, "active", 498) == (452, 302)
    assert neighbourhood(500, 50, 150, "active") is None
    assert least(100, 10, 10, "passive", 98) == (22, 12)
    assert neighbourhood(100, 10, 10, "passive") is None
    assert neighbourhood(101, 10, 10, "passive") == (22, 12)


def test_a_tenth_may_collude_whatever_the_plan_says() -> None:
    assert (
        neighbourhood(300, 0, 30, "passive")
        == neighbourhood(300, 30, 30, "passive")
        == least(300, 30, 30, "passive", 150)
    )
    assert neighbourhood(300, 40, 30, "passive") != neighbourhood(300, 30, 30, "passive")


def test_the_tail_is_the_hypergeometric_one() -> None:
    rng = np.random.default_rng(0)
    seen = rng.hypergeometric(30, 70, 20, 200_000)
    for few in (0, 3, 6, 9):
        assert graphs._tail(100, 30, 20, few) == pytest.approx((seen >= few).mean(), abs=0.005)
    assert graphs._tail(100, 30, 20, 31) == 0


def pieces(graph: Graph, kept: set[str]) -> int:
    left, count = set(kept), 0
    while left:
        count += 1
        edge = {left.pop()}
        while edge:
            edge = {n for site in edge for n in graph.neighbours(site) if n in left}
            left -= edge
    return count


def test_two_gaps_of_half_a_neighbourhood_part_the_survivors_and_one_does_not() -> None:
    of = session(120, fewest=110, adversary="passive")
    graph = Graph.of(of, b"d" * 32, of.cohort)
    assert graph.ring is not None
    half, ring = graph.degree // 2, graph.ring
    one = set(ring[:half])
    assert pieces(graph, set(ring) - one) == 1
    for gap, expected in ((half - 1, 1), (half, 2)):
        assert pieces(graph, set(ring) - one - set(ring[60 : 60 + gap])) == expected


def test_a_site_next_to_a_gap_is_opened_only_with_colluders_in_it() -> None:
    of = session(120, fewest=110, adversary="passive")
    graph = Graph.of(of, b"d" * 32, of.cohort)
    assert graph.ring is not None
    around = set(graph.holders(graph.ring[0])) - set(graph.ring[1 : 1 + graph.degree // 2])
    assert len(around) == graph.degree // 2
    assert len(around) < graph.threshold
    assert graph.ring[0] not in graph.holders(graph.ring[0])


def test_a_sparse_graph_is_regular_mutual_and_of_everyone() -> None:
    of = session(120, fewest=110, adversary="passive")
    graph = Graph.of(of, b"d" * 32, of.cohort)
    assert graph.ring is not None
    assert sorted(graph.ring) == list(of.cohort)
    for site in of.cohort:
        near = graph.neighbours(site)
        assert len(set(near)) == graph.degree
        assert site not in near
        assert all(site in graph.neighbours(other) for other in near)


def test_the_order_depends_on_all_adverts_and_nobody_else() -> None:
    of = session(120, fewest=110, adversary="passive")
    rings = [Graph.of(of, digest, of.cohort).ring for digest in (b"a" * 32, b"b" * 32, b"a" * 32)]
    assert rings[0] == rings[2] != rings[1]
    assert rings[0] is not None
    assert rings[0] != tuple(sorted(rings[0]))
    together = sum(abs(of.number(a) - of.number(b)) == 1 for a, b in pairwise(rings[0]))
    assert together < 15  # chance gives two; names that stand together in the roster do not stand together here


def test_up_to_a_hundred_everyone_is_everyones_neighbour() -> None:
    of = session(FULL_UP_TO)
    graph = Graph.of(of, b"d" * 32, of.cohort)
    assert (graph.ring, graph.degree, graph.threshold) == (None, 99, 67)
    assert len(graph.neighbours("site-005")) == 99
    assert graph.holders("site-005") == of.cohort


def drawn(of: Session) -> Graph:
    """The graph of a session in which everyone advertises."""
    adverts = {site: client.step(state, Begin(of.session_id))[1][0] for site, state in starts(of).items()}
    return Graph.of(of, sha256(Adverts(adverts).to_bytes()).digest(), of.cohort)  # type: ignore[arg-type]


@pytest.mark.usefixtures("remembered")
def test_a_session_with_neighbourhoods_gives_the_exact_sum() -> None:
    of = session(104, fewest=95, adversary="passive")
    assert drawn(of).degree == 20
    gone = [f"site-{i:03d}" for i in (3, 50, 101)]
    run = Run(of, {"shares": ["site-007"], "masked": gone, "reveal": ["site-011"]})
    end = run.play()
    assert isinstance(end, server.Done)
    assert len(end.survivors) == 100
    np.testing.assert_array_equal(of.ring.center(end.total), run.expected(end.survivors))
    assert refusals(run) == {}
    assert len(revealed(run)["site-000"].shares) <= 20


@pytest.mark.usefixtures("remembered")
def test_who_has_too_few_neighbours_left_is_left_out() -> None:
    of = session(104, fewest=87, adversary="passive")
    graph = drawn(of)
    assert graph.ring is not None
    assert (graph.degree, graph.threshold) == (32, 17)
    lonely, steps = 50, (*range(-16, -12), *range(-4, 0), *range(1, 5), *range(13, 17))  # it has 16 left, others 19
    run = Run(of, {"shares": [graph.ring[lonely + i] for i in steps]})
    end = run.play()
    assert isinstance(end, server.Done)
    assert end.dropped[graph.ring[lonely]].reason == "fewer than 17 neighbours shared keys"
    assert len(end.survivors) == 104 - 17
    np.testing.assert_array_equal(of.ring.center(end.total), run.expected(end.survivors))
    assert refusals(run) == {}


@pytest.mark.usefixtures("remembered")
def test_a_site_refuses_survivors_with_too_few_of_its_neighbours() -> None:
    of = session(104, fewest=87, adversary="passive")
    graph = drawn(of)
    assert graph.ring is not None
    victim = graph.ring[50]
    gone = {graph.ring[50 + i] for i in (*range(-16, -8), *range(9, 17))}

    def isolate(site: str, message: ToSite) -> list[ToSite]:
        if isinstance(message, Survivors):
            return [Survivors(tuple(name for name in message.names if name not in gone))]
        return [message]

    run = Run(of, tamper=isolate)
    run.play()
    assert "at least 17 of this site's neighbours; got 16" in refusals(run)[victim]
    assert revealed(run) == {}
