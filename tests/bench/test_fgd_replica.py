"""The replica gives the published curves, the bound holds, and the bundled data is what its description says."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tests.bench import bound, fgd_replica, openb
from tests.bench.fgd_replica import Outcome, State, Typical
from tests.bench.openb import Ints, Nodes, Pods

TRACE, SEED = "multigpu50", 42  # the shortest
ANY_MODEL = 1


def ints(*values: int) -> Ints:
    return np.array(values, dtype=np.int64)


def tiny_nodes(*gpus: int, cpu_milli: int = 64_000) -> Nodes:
    many = len(gpus)
    return Nodes(np.full(many, cpu_milli), np.full(many, 65_536), ints(*gpus), np.zeros(many, dtype=np.int64), ("T4",))


def tiny_pods(*asked: tuple[int, int], cpu_milli: int = 1_000, accepts: int = ANY_MODEL) -> Pods:
    """Of (GPUs, milli of each)."""
    many = len(asked)
    gpus, milli = ints(*(a for a, _ in asked)), ints(*(b for _, b in asked))
    no_spec = np.zeros(many, dtype=np.int64)
    return Pods(np.full(many, cpu_milli), np.full(many, 1_024), gpus, milli, no_spec, np.full(many, accepts), ("",))


def placed(policy: str, nodes: Nodes, pods: Pods, rank: Ints) -> Outcome:
    return fgd_replica.simulate(fgd_replica.policy(policy, pods), nodes, pods, np.arange(len(pods.gpus)), rank)


@pytest.mark.parametrize("policy", [name for name in openb.POLICIES if name != "Random"])
def test_the_replica_gives_the_whole_published_curve(policy: str) -> None:
    outcome = fgd_replica.run(fgd_replica.policy(policy, openb.pods(TRACE)), TRACE, SEED)
    assert outcome.curve().tolist() == openb.published(policy, TRACE, SEED).tolist()


def test_random_choices_come_near_the_published_ones_and_depend_on_the_seed_alone() -> None:
    pods, nodes, rank = openb.pods(TRACE), openb.nodes(), openb.ranks(TRACE, SEED)
    chosen, some = fgd_replica.policy("Random", pods), openb.arrivals(TRACE, SEED)[:500]
    one, again, other = (fgd_replica.simulate(chosen, nodes, pods, some, rank, seed).node for seed in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    published = [openb.published("Random", TRACE, seed)[-1] for seed in openb.SEEDS]
    assert min(published) - 1 < fgd_replica.run(chosen, TRACE, SEED).curve()[-1] < max(published) + 1


def test_no_node_gives_more_than_it_has() -> None:
    nodes, pods, order = openb.nodes(), openb.pods("gpuspec33"), openb.arrivals("gpuspec33", SEED)
    outcome = fgd_replica.run(fgd_replica.policy("BestFit", pods), "gpuspec33", SEED)
    got = np.flatnonzero(outcome.node >= 0)
    node, pod = outcome.node[got], order[got]
    assert 0 < len(got) < len(order)
    for asked, there in ((pods.cpu_milli, nodes.cpu_milli), (pods.memory_mib, nodes.memory_mib)):
        assert (np.bincount(node, asked[pod], len(there)) <= there).all()
    bits = outcome.devices[got, None] >> np.arange(openb.MOST_GPUS) & 1
    assert np.array_equal(bits.sum(axis=1), pods.gpus[pod])
    used = np.zeros((len(nodes.gpus), openb.MOST_GPUS), dtype=np.int64)
    np.add.at(used, node, bits * pods.gpu_milli[pod, None])
    assert (used <= nodes.gpu_milli()).all()
    assert ((pods.accepts[pod] >> nodes.model[node] & 1 == 1) | (pods.gpus[pod] == 0)).all()


def test_fragmentation_of_a_node_worked_by_hand() -> None:
    """One GPU has 300 left, one is idle. Half of the pods want 500 of a GPU, 30 % two GPUs, 20 % none."""
    fgd_replica.compile_kernels()
    typical = Typical(
        ints(1_000, 1_000, 1_000), ints(1, 2, 0), ints(500, 1_000, 0), ints(1, 1, 1), np.array([0.5, 0.3, 0.2])
    )
    left = np.zeros((1, openb.MOST_GPUS), dtype=np.int64)
    left[0, :2] = 300, 1_000
    state = State(ints(4_000), ints(65_536), left, ints(2), ints(0), ints(0))
    # The first can't use the 300; the second can use nothing; the third wants nothing.
    assert fgd_replica.fragmentation(state, typical, 0) == pytest.approx(0.5 * 300 + 0.3 * 1_300 + 0.2 * 1_300)
    other_model = typical._replace(accepts=ints(2, 1, 1))
    assert fgd_replica.fragmentation(state, other_model, 0) == pytest.approx(1_300)
    state.cpu_left[0] = 999
    assert fgd_replica.fragmentation(state, typical, 0) == pytest.approx(1_300)
    state.cpu_left[0] = 4_000
    # A share of 300: on the first GPU 800 falls to 500, 100 / (1 + e^-0.3) = 57.4; on the second to 650, 53.7.
    asked = fgd_replica.requests(tiny_pods((1, 300), (2, 1_000), cpu_milli=0))
    assert fgd_replica.fgd_score(state, asked, typical, 0, 0) == (57.0, 0)
    assert state.gpu_left[0, :2].tolist() == [300, 1_000]


def test_equal_scores_go_to_the_lowest_rank_and_what_fits_nowhere_is_dropped() -> None:
    pods = tiny_pods((1, 600), (1, 600), (1, 600), (1, 400), (0, 0))
    outcome = placed("BestFit", tiny_nodes(1, 1), pods, rank=ints(1, 0))
    assert outcome.node.tolist() == [1, 0, -1, 1, 1]  # the last joins the fuller node
    assert outcome.used.tolist() == [600, 1_200, 1_200, 1_600, 1_600]
    assert outcome.arrived.tolist() == [600, 1_200, 1_800, 2_200, 2_200]


def test_the_curve_is_the_mean_over_arrivals_that_round_to_a_percentage() -> None:
    """Two GPUs; demand of 10, 10.4, 11.2 and 14 % and after each 10, 10, 10.8 and 13.6 % allocated."""
    nothing = ints(0, 0, 0, 0)
    curve = Outcome(nothing, nothing, ints(200, 208, 224, 280), ints(200, 200, 216, 272), gpus=2).curve()
    assert curve[9:16].tolist()[1:3] == [10.0, 10.8]
    assert curve[[9, 12, 13, 15]].tolist() == [10.0, 10.8, 13.6, 13.6]  # none rounds to these: those next to it
    assert np.isnan(curve[[8, 16, 130]]).all()


def test_typical_pods_are_the_commonest_until_95_percent() -> None:
    pods = tiny_pods(*[(1, 1_000)] * 10, *[(1, 500)] * 6, *[(1, 300)] * 3, (1, 100))
    typical = fgd_replica.typical_pods(pods)
    assert typical.milli.tolist() == [1_000, 500, 300]
    assert typical.share.tolist() == pytest.approx([10 / 19, 6 / 19, 3 / 19])
    assert len(fgd_replica.typical_pods(openb.pods("default")).cpu) == 35


def test_the_bound_knows_that_a_gpu_holds_whole_shares() -> None:
    """Two GPUs and shares of 600 and 300: one of each makes 900 of 1000; two of 600 don't fit."""
    nodes, pods = tiny_nodes(2), tiny_pods(*[(1, 600)] * 3, *[(1, 300)] * 2)
    outcome = placed("BestFit", nodes, pods, rank=ints(0))
    order = np.arange(len(pods.gpus))
    assert bound.upper_bound(nodes, pods, order, outcome) == pytest.approx(90.0)
    short_of_cpu = tiny_nodes(2, cpu_milli=3_000)  # three pods: two of 600 and one of 300
    outcome = placed("BestFit", short_of_cpu, pods, rank=ints(0))
    assert bound.upper_bound(short_of_cpu, pods, order, outcome) == pytest.approx(75.0)


def test_the_bound_of_a_trace_is_above_what_policies_reach() -> None:
    pods, order = openb.pods(TRACE), openb.arrivals(TRACE, SEED)
    outcome = fgd_replica.run(fgd_replica.policy("BestFit", pods), TRACE, SEED)
    limit = bound.upper_bound(openb.nodes(), pods, order, outcome)
    assert openb.published("FGD", TRACE, SEED)[-1] < limit < 99.0


def test_the_data_is_what_its_description_says() -> None:
    nodes = openb.nodes()
    assert (len(nodes.gpus), nodes.gpus.sum(), nodes.cpu_milli.sum()) == (1_213, 6_212, 107_018_000)
    assert nodes.gpu_milli().sum() == 6_212_000
    assert [len(openb.TRACES), len(openb.POLICIES), len(openb.SEEDS)] == [17, 6, 10]
    default = openb.pods("default")
    kinds = [(default.gpus == 0).sum(), ((default.gpus == 1) & (default.gpu_milli < 1_000)).sum()]
    assert [len(default.gpus), *kinds] == [8_152, 1_088, 3_078]
    spec = openb.pods("gpuspec33")
    named = spec.spec == spec.specs.index("V100M16|V100M32")
    assert set(spec.accepts[named].tolist()) == {sum(1 << nodes.models.index(m) for m in ("V100M16", "V100M32"))}
    assert set(default.accepts.tolist()) == {(1 << len(nodes.models)) - 1}


@pytest.mark.parametrize("trace", openb.TRACES)
def test_every_order_brings_130_percent_of_demand(trace: str) -> None:
    pods = openb.pods(trace)
    for seed in openb.SEEDS:
        order = openb.arrivals(trace, seed)
        assert order.max() < len(pods.gpus)
        assert pods.demand[order].sum() / 6_212_000 == pytest.approx(1.3, abs=0.002)
        first = order[: len(pods.gpus)]
        assert len(np.unique(first)) == len(first)  # each pod once before any comes again
        assert np.array_equal(np.sort(openb.ranks(trace, seed)), np.arange(1_213))
        for policy in openb.POLICIES:
            curve = openb.published(policy, trace, seed)
            assert curve.shape == (131,)
            assert 75 < curve[-1] < 99


def test_names_that_are_not_there_are_refused() -> None:
    with pytest.raises(ValueError, match="there are: default, cpu050"):
        openb.pods("cpu051")
    with pytest.raises(ValueError, match="there are: Random"):
        openb.published("Worst", TRACE, SEED)
    with pytest.raises(ValueError, match="no seed 41; there are 42 to 51"):
        openb.arrivals(TRACE, 41)


def test_without_numba_the_message_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(RuntimeError, match="needs numba"):
        fgd_replica.compile_kernels.__wrapped__()
