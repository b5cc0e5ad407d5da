"""SampledLattice: its law by exact enumeration on tiny domains, sensitivity, what leaves, and what does not.

The enumeration runs over all samples and nodes, by levels, counts and scores of its own, and compares all neighbours:
what a set of outputs can gain is the sum of the positive parts of P - e^epsilon P'.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import re
from collections import Counter
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.builders import a_policy
from tests.chance_help import chance_of
from tests.oracles.lattice import FLAT, interval_levels, tree_levels

import dunnage as dn
from dunnage.errors import ParameterError
from dunnage.model.guarantees import Basis, Neighbours, SampledDP
from dunnage.noise.sampling import exact_delta, sampling_delta, sampling_epsilon
from dunnage.publishing import left_out_rows

NUMBER = {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 4], "resolution": 1, "doubling": 2}
TREE = {"role": "quasi-identifier", "kind": "tree", "parents": {"a": "A", "b": "A", "c": "B", "A": "*", "B": "*"}}
FLAG = {"role": "quasi-identifier", "kind": "category", "domain": ["x", "y"]}
PUBLIC = {"role": "public"}
ONE_NUMBER = {"w": NUMBER}
TWO_FLAGS = {"f": FLAG, "g": FLAG}
MIXED = {"w": {**NUMBER, "doubling": 4}, "t": FLAG, "s": PUBLIC}
SEVEN_TENTHS = Fraction(7, 10)


def dataset(rows, attributes):
    """Make a dataset of tuples."""
    policy = a_policy({"name": "sampled-lattice", "k": 2, "beta": 0.5, "epsilon_choice": 1}, attributes)
    columns = {name: [row[i] for row in rows] for i, name in enumerate(attributes)}
    return dn.Dataset.from_table(pa.table(columns), policy)


def publish(mechanism, data, noise=None):
    return mechanism.release(data, ledger=dn.Ledger(":memory:"), noise=noise or dn.Noise())


def levels_of(attributes):
    """Levels of each quasi-identifier, by the oracle."""
    found = {}
    for name, item in attributes.items():
        if item.get("kind") == "numeric":
            found[name] = interval_levels(*item["domain"], Fraction(item["doubling"]))
        elif item.get("kind"):
            found[name] = FLAT if item["kind"] == "category" else tree_levels(item["parents"])
    return found


class Lattice:
    """All nodes: how precise each is, and what is told of each row."""

    def __init__(self, rows, attributes):
        levels = levels_of(attributes)
        self.nodes = list(itertools.product(*(range(level.num) for level in levels.values())))
        tops = [level.num - 1 for level in levels.values()]
        self.precision = [1 - Fraction(sum(map(Fraction, node, tops)), len(tops)) for node in self.nodes]
        names = list(attributes)
        numbers = [(names.index(name), level) for name, level in levels.items()]
        public = [place for place, name in enumerate(names) if name not in levels]
        self.shown = {}  # of each node, for each row: generalised values, then public ones
        for node in self.nodes:
            told = [
                tuple(
                    level.generalise(row[place], number)[0]
                    for (place, level), number in zip(numbers, node, strict=True)
                )
                for row in rows
            ]
            self.shown[node] = [
                (own, tuple(row[place] for place in public)) for own, row in zip(told, rows, strict=True)
            ]

    def kept(self, node, sample, k):
        """What is released of sampled rows: those that k have alike."""
        looks = Counter(itertools.compress(self.shown[node], sample))
        return {look: number for look, number in looks.items() if number >= k}

    def utilities(self, sample, k, weight=Fraction(0)):
        """Count kept x precision of every node; a kept record counts at least the weight."""
        kept = [sum(self.kept(node, sample, k).values()) for node in self.nodes]
        worth = [weight + (1 - weight) * precision for precision in self.precision]
        return [number * own for number, own in zip(kept, worth, strict=True)]

    def choice(self, mechanism, sample):
        """The probability of each node, given the sample it is chosen on."""
        k, epsilon = mechanism.least, mechanism.epsilon_choice
        factor = epsilon / max(sum(sample), 1) if mechanism.as_published else epsilon / (2 * k)
        utilities = self.utilities(sample, k, mechanism.suppression_weight)
        scores = np.array([float(factor * utility) for utility in utilities])
        weights = np.exp(scores - scores.max())
        return weights / weights.sum()


@functools.cache
def output_law(rows, kind, mechanism, same_sample=False):
    """Return the probability of every output: node and multiset of released rows."""
    lattice, beta = Lattice(rows, KINDS[kind]), float(mechanism.rate)
    samples = list(itertools.product((False, True), repeat=len(rows)))
    chances = [beta ** sum(sample) * (1 - beta) ** (len(rows) - sum(sample)) for sample in samples]
    choices = [lattice.choice(mechanism, sample) for sample in samples]
    overall = sum(chance * choice for chance, choice in zip(chances, choices, strict=True))
    law = Counter()
    for sample, weight, choice in zip(samples, chances, choices, strict=True):
        own = choice if same_sample or mechanism.as_published else overall
        for node, chance in zip(lattice.nodes, own, strict=True):
            law[node, tuple(sorted(lattice.kept(node, sample, mechanism.least).items()))] += weight * chance
    return law


KINDS = {"number": ONE_NUMBER, "flags": TWO_FLAGS, "mixed": MIXED}


def gained(law, other, epsilon):
    """Return the largest P(S) - e^epsilon P'(S) over all sets S of outputs."""
    return sum(max(0.0, chance - math.exp(epsilon) * other[output]) for output, chance in law.items())


def worst(kind, values, most, mechanism, epsilon, **how):
    """Return the largest gain over all datasets of at most so many records and all add-remove neighbours."""
    largest = 0.0
    for num in range(1, most + 1):
        for rows in itertools.combinations_with_replacement(values, num):
            law = output_law(rows, kind, mechanism, **how)
            for value in values:
                more = output_law(tuple(sorted((*rows, value))), kind, mechanism, **how)
                largest = max(largest, gained(law, more, epsilon), gained(more, law, epsilon))
    return largest


NUMBERS = ((0.0,), (1.0,), (2.0,))
FLAGS = (("x", "x"), ("x", "y"), ("y", "x"))
MIXTURES = ((0.0, "x", "p"), (1.0, "x", "p"), (1.0, "y", "q"))


@pytest.mark.parametrize(
    ("kind", "values", "most", "k", "beta", "epsilon_choice", "weight"),
    [
        ("number", NUMBERS, 4, 2, "0.7", 1, 0),
        ("number", NUMBERS, 4, 3, "0.7", 4, 0),
        ("number", NUMBERS, 4, 2, "0.2", "0.5", 0),
        ("number", NUMBERS, 4, 2, "0.5", "0.5", "0.75"),
        ("flags", FLAGS, 3, 2, "0.7", 10, "0.3"),
        ("mixed", MIXTURES, 3, 2, "0.7", 1, 0),
    ],
)
def test_enumerated_loss_is_within_the_promise(kind, values, most, k, beta, epsilon_choice, weight):
    mechanism = dn.SampledLattice(k=k, beta=beta, epsilon_choice=epsilon_choice, suppression_weight=weight)
    promise = mechanism.promise(dataset([values[0]], KINDS[kind]).schema)
    assert promise.basis is Basis.PROVED
    largest = worst(kind, values, most, mechanism, float(promise.guarantee.epsilon))
    assert 0 <= largest <= float(promise.guarantee.delta) + 1e-12
    assert largest > 0 or beta == "0.2"


def test_bound_is_tight_for_two_records():
    """One record, or two equal ones: both are sampled with beta^2, and then no other dataset can be the truth."""
    mechanism = dn.SampledLattice(k=2, beta="0.7", epsilon_choice=1)
    one, two = (output_law(((0.0,),) * num, "number", mechanism) for num in (1, 2))
    assert gained(two, one, 100) == pytest.approx(0.49)
    assert mechanism.promise(dataset([(0.0,)], ONE_NUMBER).schema).guarantee.delta == Fraction(49, 100)


def test_choice_on_the_released_sample_would_break_the_bound():
    """The choice keeps epsilon_1 between replaced records too; made on the released sample, that is not enough."""
    mechanism = dn.SampledLattice(k=2, beta="0.7", epsilon_choice=8)
    epsilon = float(mechanism.promise(dataset([("x", "x")], TWO_FLAGS).schema).guarantee.epsilon)
    delta = float(sampling_delta(2, SEVEN_TENTHS))
    assert worst("flags", FLAGS, 2, mechanism, epsilon, same_sample=True) > delta + 0.03
    assert worst("flags", FLAGS, 2, mechanism, epsilon) <= delta


def test_published_form_fails_as_stated_and_what_holds_does():
    mechanism = dn.SampledLattice(k=2, beta="0.7", epsilon_choice=6, as_published=True)
    promise = mechanism.promise(dataset([("x", "x")], TWO_FLAGS).schema)
    # The claim for the largest sample that three records can give; delta as published, and by the original theorem.
    claimed = float(sampling_epsilon(SEVEN_TENTHS)) + 2 * 6 * 2 / 3
    largest = worst("flags", FLAGS, 2, mechanism, claimed)
    assert largest > float(sampling_delta(2, SEVEN_TENTHS))
    assert float(sampling_delta(2, SEVEN_TENTHS, as_published=True)) == pytest.approx(0.343)
    assert promise.basis is Basis.CLAIMED
    assert promise.holds is not None
    for kind, values in (("flags", FLAGS), ("number", NUMBERS)):
        assert worst(kind, values, 3, mechanism, float(promise.holds.epsilon)) <= float(promise.holds.delta) + 1e-12


@pytest.mark.parametrize("as_published", [False, True])
def test_releases_follow_the_enumerated_law(as_published):
    """400 releases of five records; a quarter of the mass moved to one output is found with probability above 0.99."""
    rows = ((0.0, "x", "p"), (0.0, "x", "p"), (1.0, "x", "p"), (1.0, "y", "p"), (1.0, "y", "q"))
    weight = 0 if as_published else "0.4"
    mechanism = dn.SampledLattice(
        k=2, beta="0.7", epsilon_choice=2, as_published=as_published, suppression_weight=weight
    )
    law, data, seen = output_law(rows, "mixed", mechanism), dataset(rows, MIXED), Counter()
    for _ in range(400):
        release, _ = publish(mechanism, data)
        table = release.data.to_pylist()
        shown = Counter((((row["w_lower"], row["w_upper"]), row["t"]), (row["s"],)) for row in table)
        node = tuple(release.certificate.plain()["measures"]["levels"].values())
        seen[(node, tuple(sorted(shown.items())))] += 1
    assert seen.keys() <= law.keys()
    assert sum(law.values()) == pytest.approx(1)
    rarest_first = sorted(law, key=law.__getitem__)
    expected = [float(law[output]) * 400 for output in rarest_first]
    assert chance_of([seen[output] for output in rarest_first], expected) > 1e-9


VALUES = st.tuples(st.sampled_from([0.0, 1.0, 2.0, 3.0]), st.sampled_from("xy"), st.sampled_from("pq"))


@given(st.lists(VALUES, min_size=2, max_size=14), VALUES, st.integers(2, 4))
@settings(max_examples=30, deadline=None)
def test_one_record_changes_no_score_by_more_than_k(rows, other, k):
    def utilities(own):
        return Lattice(own, MIXED).utilities([True] * len(own), k, Fraction(k - 2, 3))

    before = utilities(rows)
    added, removed, replaced = utilities([*rows, other]), utilities(rows[1:]), utilities([*rows[1:], other])
    for after in (added, removed, replaced):
        assert max(abs(a - b) for a, b in zip(after, before, strict=True)) <= k
    assert all(a >= b for a, b in zip(added, before, strict=True))
    assert all(a <= b for a, b in zip(removed, before, strict=True))


@given(st.lists(VALUES, min_size=1, max_size=14), st.integers(2, 4), st.booleans())
@settings(max_examples=40, deadline=None)
def test_scores_and_counts_are_those_of_slow_counting(rows, k, as_published):
    """Both forms foresee the choice on all rows."""
    mechanism, lattice = (
        dn.SampledLattice(k=k, beta="0.5", epsilon_choice=3, as_published=as_published),
        Lattice(rows, MIXED),
    )
    everyone = [True] * len(rows)
    law = dict(zip(lattice.nodes, lattice.choice(mechanism, everyone), strict=True))
    told = mechanism.preview(dataset(rows, MIXED)).details["nodes"]
    assert len(told) == len(law)
    for node in told:
        levels = tuple(node["levels"].values())
        assert node["probability"] == pytest.approx(law[levels])
        assert node["kept"] == sum(lattice.kept(levels, everyone, k).values())


def promise_of(attributes=ONE_NUMBER, **parameters):
    rows = [tuple(0.0 if "doubling" in item else "x" for item in attributes.values())]
    return dn.SampledLattice(**parameters).promise(dataset(rows, attributes).schema)


def test_promises():
    promise = promise_of(k=40, beta="0.7", epsilon_choice=1)
    guarantee = promise.guarantee
    assert isinstance(guarantee, SampledDP)
    assert float(guarantee.epsilon) == pytest.approx(1 - math.log(0.3))
    assert guarantee.delta == exact_delta(40, "0.7")
    by_theorem = promise_of(k=40, beta="0.7", epsilon_choice=1, accounting="theorem")
    assert float(by_theorem.guarantee.delta) == pytest.approx(6.790e-4, rel=1e-3)
    # Certificates before version 0.2 do not name it, and state the delta and the k of the theorem.
    assert "accounting" not in by_theorem.mechanism
    assert dn.SampledLattice.from_description(by_theorem.mechanism).accounting == "theorem"
    assert (guarantee.beta, guarantee.neighbours) == (SEVEN_TENTHS, Neighbours.ADD_REMOVE)
    assert promise.basis is Basis.PROVED
    assert not promise.warnings
    names = [assumption.name for assumption in promise.assumptions]
    assert {"secret sample", "sample drawn afresh", "public domain", "system entropy"} <= set(names)
    mechanism = dn.SampledLattice(epsilon=2, delta="1e-6", epsilon_choice="0.5")
    guarantee = mechanism.promise(dataset([(0.0,)], ONE_NUMBER).schema).guarantee
    assert guarantee.epsilon == 2
    assert guarantee.delta <= Fraction(1, 10**6) < exact_delta(mechanism.least - 1, mechanism.rate)
    assert float(mechanism.rate) == pytest.approx(1 - math.exp(-1.5))
    assert (mechanism.describe()["k"], mechanism.describe()["delta"]) == (mechanism.least, 1e-06)
    (warning,) = promise_of(k=2, beta="0.7", epsilon_choice=1).warnings
    assert "0.49" in warning
    guarantee = promise_of(k=100_000, beta="0.5", epsilon_choice=1).guarantee
    assert 0 < guarantee.delta <= Fraction(1, 10**300)
    assert json.loads(json.dumps(guarantee.to_dict()))["delta"] == 1e-300
    pool = promise_of(k=20, beta="0.5", epsilon_choice=1, left_out="pool")
    assert pool.basis is Basis.CLAIMED
    assert pool.holds == pool.guarantee
    assert pool.true_loss(Neighbours.ADD_REMOVE).bounded
    noisy = promise_of(k=20, beta="0.5", epsilon_choice=1, left_out="noisy", left_out_epsilon=1)
    assert (noisy.basis, noisy.holds) == (Basis.CLAIMED, None)
    assert not noisy.true_loss(Neighbours.ADD_REMOVE).bounded


def test_as_published_states_the_claim_and_what_holds():
    promise = promise_of(k=4, beta="0.7", epsilon_choice=3, as_published=True)
    assert promise.basis is Basis.CLAIMED
    assert "0.169" in promise.claim  # delta by the published formula, rounded up
    assert float(promise.holds.epsilon) == pytest.approx(6 - math.log(0.3))
    assert sampling_delta(4, "0.7") < promise.holds.delta < SEVEN_TENTHS
    # Their example: epsilon of about 1.8 for k = 4 and 40 sampled records.
    assert float(sampling_epsilon("0.7")) + 2 * 3 * 4 / 40 == pytest.approx(1.804, abs=5e-4)


def test_wrong_parameters_are_refused():
    by_k = {"k": 5, "beta": 0.5}
    for parameters in (
        {"k": 5},
        {**by_k, "epsilon": 1},
        {"epsilon": 2},
        {**by_k, "epsilon_choice": 0},
        {**by_k, "k": 1},
        {**by_k, "beta": 1},
        {"epsilon": 1, "delta": 0.1},
        {"epsilon": 2, "delta": 0},
        *({**by_k, "left_out": left_out} for left_out in ("burn", "noisy")),
        {**by_k, "left_out_epsilon": 1},
        {**by_k, "left_out_borders": [2]},
        *({**by_k, "suppression_weight": weight} for weight in (-1, 1)),
        {**by_k, "suppression_weight": 0.5, "as_published": True},
        {**by_k, "confidence": 0.9},
        {**by_k, "as_published": "yes"},
        {"epsilon": 2, "delta": 0.1, "as_published": True},
    ):
        with pytest.raises(ParameterError):
            dn.SampledLattice(**{"epsilon_choice": 1, **parameters})


def test_schemas_that_cannot_be_released_are_refused_before_any_data():
    mechanism = dn.SampledLattice(k=2, beta="0.5", epsilon_choice=1)
    noisy = dn.SampledLattice(k=2, beta="0.5", epsilon_choice=1, left_out="noisy", left_out_epsilon=1)
    large = {"w": {**NUMBER, "domain": [0, 2**20], "doubling": 1}, "f": FLAG}
    mechanism.promise(dataset([(0.0, "x")], large).schema)
    for tried, attributes, row, says in (
        (mechanism, {"w": NUMBER, "s": {"role": "sensitive"}}, (0.0, "x"), "sensitive s"),
        (mechanism, {"s": PUBLIC}, ("x",), None),
        (noisy, TWO_FLAGS, ("x", "x"), None),
        (mechanism, {f"f{i}": FLAG for i in range(16)}, ("x",) * 16, "32,768"),
    ):
        with pytest.raises(ParameterError, match=says):
            tried.promise(dataset([row], attributes).schema)


def parcels(num, seed=1):
    """Make a dataset of many records with an identifier, a public column, a number and a tree."""
    draw = np.random.default_rng(seed)
    weights = draw.integers(0, 65, num).astype(float).tolist()
    labels = [draw.choice(values, num).tolist() for values in (["north", "south"], ["a", "b", "c"])]
    attributes = {
        "id": {"role": "identifier"},
        "s": PUBLIC,
        "w": {**NUMBER, "domain": [0, 64], "doubling": 4},
        "t": TREE,
    }
    return dataset(
        list(zip([f"CANARY{i}" for i in range(num)], labels[0], weights, labels[1], strict=True)), attributes
    )


def test_rows_are_generalisations_of_the_records_the_key_names(tmp_path):
    data = parcels(400)
    mechanism = dn.SampledLattice(k=5, beta="0.6", epsilon_choice=2)
    release, key = publish(mechanism, data).write(tmp_path / "release")
    measures = release.certificate.plain()["measures"]
    assert release.data.column_names == ["row", "class_id", "s", "w_lower", "w_upper", "t"]
    table = release.data.to_pylist()
    records = {row["row"]: row for row in key.table.to_pylist()}
    numbers, publics, labels = data.numbers("w"), data.column("s").to_pylist(), data.column("t").to_pylist()
    above = {leaf: {leaf, TREE["parents"][leaf], "*"} for leaf in "abc"}
    for row in table:
        source = records[row["row"]]["source_row"] - 1
        assert row["w_lower"] <= numbers[source] <= row["w_upper"]
        assert row["s"] == publics[source]
        assert row["t"] in above[labels[source]]
    sizes = Counter((row["s"], row["w_lower"], row["w_upper"], row["t"]) for row in table)
    assert min(sizes.values()) >= 5
    assert measures["records"] == len(table) == sum(sizes.values())
    assert sorted(sizes.values()) == sorted(release.classes.column("size").to_pylist())
    assert set(measures) == {"records", "k_asked", "k_reached", "classes", "class_size", "levels", "loss"}
    assert (measures["k_asked"], measures["k_reached"]) == (5, min(sizes.values()))
    assert key.facts["unsampled"] + key.facts["suppressed"] + len(table) == 400
    assert dn.Key.read(tmp_path / "release.key.parquet").facts == key.facts


def test_records_are_sampled_at_the_rate_and_left_out_rows_are_those_the_key_does_not_name():
    data = parcels(2000)
    _, key = publish(dn.SampledLattice(k=5, beta="0.3", epsilon_choice=2, left_out="pool"), data)
    left = left_out_rows(data, key)
    assert len(left) == key.facts["unsampled"] + key.facts["suppressed"]
    assert sorted([*(left + 1).tolist(), *key.table.column("source_row").to_pylist()]) == list(range(1, 2001))
    assert stats.binomtest(key.facts["unsampled"], 2000, 0.7).pvalue > 1e-9


def test_nothing_in_the_folder_tells_of_records_that_are_left_out(tmp_path):
    """9,973 records, of which some 7,000 are not sampled and 2,700 suppressed: no such number is in any file."""
    # Most records are alone with their public value, so that they are suppressed at every node.
    rows = [(float(i % 5), f"label{i}" if i < 9_000 else "harbour") for i in range(9_973)]
    data = dataset(rows, {"w": NUMBER, "s": PUBLIC})
    release, key = publish(dn.SampledLattice(k=12, beta="0.3", epsilon_choice=1), data).write(tmp_path / "release")
    facts = key.facts
    kept = len(release)
    assert 0 < kept < facts["suppressed"] < facts["unsampled"]
    hidden = {9_973, *facts.values(), 9_973 - facts["unsampled"], 9_973 - kept}
    tokens = re.compile(r"(?<![0-9A-Za-z.])\d+(?![0-9A-Za-z.])")
    for path in (tmp_path / "release").iterdir():
        content = path.read_bytes()
        if path.name == "verify.html":  # the same for all releases: test_release says so
            continue
        assert b"label" not in content
        if path.suffix == ".parquet":
            parquet = pq.ParquetFile(path)
            assert set(parquet.schema_arrow.metadata or {}) <= {b"ARROW:schema"}
            assert parquet.metadata.num_rows <= kept
            assert set(parquet.metadata.metadata or {}) <= {b"ARROW:schema"}
            values = {value for column in parquet.read().columns for value in column.to_pylist()}
            assert not {value for value in values if str(value).startswith("label")}
            found = {value for value in values if isinstance(value, int)}
        else:
            found = {int(token) for token in tokens.findall(content.decode())}
        assert not found & hidden, path.name


def test_a_dictionary_of_public_labels_does_not_leave():
    columns = {"w": [0.0] * 40, "s": pa.array(["seen"] * 39 + ["alone"]).dictionary_encode()}
    policy = dataset([(0.0, "x")], {"w": NUMBER, "s": PUBLIC}).policy
    data = dn.Dataset.from_table(pa.table(columns), policy)
    release, _ = publish(dn.SampledLattice(k=2, beta="0.9", epsilon_choice=1), data)
    assert release.data.schema.field("s").type == pa.string()


def test_no_rows_is_a_release_too(tmp_path):
    for num in (1, 3):
        data = dataset([(0.0, "x", "p")] * num, MIXED)
        release, key = publish(dn.SampledLattice(k=4, beta="0.7", epsilon_choice=1), data).write(tmp_path / f"{num}")
        assert len(release) == len(key.table) == 0
        assert key.facts["unsampled"] + key.facts["suppressed"] == num
        measures = release.certificate.plain()["measures"]
        assert measures["k_reached"] is measures["class_size"] is measures["loss"] is None
        again = dn.Release.read(tmp_path / f"{num}")
        assert again.data.schema == release.data.schema
        types = " ".join(str(field.type) for field in again.data.schema)
        assert types == "int64 int64 string double double string"
        assert again.classes.num_rows == 0
        assert left_out_rows(data, key).tolist() == list(range(num))


@given(st.lists(VALUES, min_size=1, max_size=8), st.integers(2, 5), st.sampled_from(["0.01", "0.5", "0.99"]))
@settings(max_examples=40, deadline=None)
def test_nothing_fails_because_of_data(rows, k, beta):
    data = dataset(rows, MIXED)
    for as_published in (False, True):
        mechanism = dn.SampledLattice(k=k, beta=beta, epsilon_choice=1, as_published=as_published)
        release, _ = publish(mechanism, data)
        assert list(release.tables) == ["data", "classes"]
        mechanism.preview(data)


def test_noisy_left_out_rows_stand_beside_the_kept(tmp_path):
    rows = [(float(i % 5), "north" if i % 3 else "south") for i in range(60)]
    attributes = {"w": NUMBER, "s": PUBLIC}
    noisy = {"left_out": "noisy", "left_out_epsilon": 3, "confidence": "0.8"}
    mechanism = dn.SampledLattice(k=5, beta="0.6", epsilon_choice=1, **noisy)
    release, key = publish(mechanism, dataset(rows, attributes)).write(tmp_path / "release")
    again = dn.Release.read(tmp_path / "release")
    table = again.data.to_pylist()
    assert len(table) == len(key.table) == 60
    out = [row for row in table if row["class_id"] < 0]
    assert len(out) == key.facts["unsampled"] + key.facts["suppressed"]
    assert all(0 <= row["w_lower"] <= row["w_upper"] <= 4 for row in table)
    source = dict(zip(key.table.column("row").to_pylist(), key.table.column("source_row").to_pylist(), strict=True))
    assert all(rows[source[row["row"]] - 1][1] == row["s"] for row in table)
    measures = release.certificate.plain()["measures"]
    assert measures["records"] == 60 - len(out)
    assert measures["noise"]["w"][0]["confidence"] == 0.8
    assert release.certificate.plain()["basis"] == "claimed"


def test_left_out_rows_get_the_noise_of_their_cluster(tmp_path):
    """Li's algorithm 2 on the items that algorithm 1 leaves out, with public borders."""
    rows = [(float(i % 5),) for i in range(60)]
    noisy = {"left_out": "noisy", "left_out_epsilon": "0.1", "confidence": "0.8", "left_out_borders": [2]}
    mechanism = dn.SampledLattice(k=5, beta="0.6", epsilon_choice=1, **noisy)
    release, key = publish(mechanism, dataset(rows, ONE_NUMBER)).write(tmp_path / "release")
    assert dn.verify(tmp_path / "release").ok
    source = dict(zip(key.table.column("row").to_pylist(), key.table.column("source_row").to_pylist(), strict=True))
    out = [row for row in release.data.to_pylist() if row["class_id"] < 0]
    assert out
    for row in out:  # at this epsilon an interval is its cluster; a grid point is half a step around it
        value = rows[source[row["row"]] - 1][0]
        assert (row["w_lower"], row["w_upper"]) == ((0, 1.5) if value < 2 else (1.5, 4))
    assert [cell.lower for cell in release.certificate.rows.noise["w"]] == [0, 2]
    assert "between which public borders" in " ".join(release.certificate.in_clear)
    promise = mechanism.promise(dataset(rows, ONE_NUMBER).schema)
    assert promise.basis is Basis.CLAIMED
    assert dn.SampledLattice.from_description(promise.mechanism) == mechanism
    # Descriptions of earlier versions have neither borders nor a weight
    plain = dn.SampledLattice(k=5, beta="0.6", epsilon_choice=1)
    assert not {"left_out_borders", "suppression_weight"} & plain.describe().keys()


def test_a_weight_on_suppression_keeps_more_records():
    """Precise levels keep few of these records, coarse ones all: the weight moves the choice."""
    rows, kept = [(float(i % 5),) for i in range(20)], []
    for weight in (0, "0.9"):
        mechanism = dn.SampledLattice(k=5, beta="0.9", epsilon_choice=3, suppression_weight=weight)
        nodes = mechanism.preview(dataset(rows, ONE_NUMBER)).details["nodes"]
        kept.append(sum(node["probability"] * node["kept"] for node in nodes))
    assert kept[1] > kept[0] + 0.5


def test_foresight_warns_and_shows_choice_probabilities_without_drawing():
    data = parcels(300)
    mechanism = dn.SampledLattice(k=5, beta="0.6", epsilon_choice=1)
    told = mechanism.preview(data)
    assert "300" in told.warnings[0]
    assert mechanism.warnings(data) == told.warnings
    nodes = told.details["nodes"]
    chances = [node["probability"] for node in nodes]
    assert chances == sorted(chances, reverse=True)
    assert all(node["share"] == node["kept"] / 300 for node in nodes)
    assert len(told.lines) == len(nodes) == 10
    assert "CANARY" not in json.dumps(told.to_dict())
    for k, beta, num in ((60, "0.4", 0), (301, "0.5", 1), (200, "0.5", 1)):  # all, or most likely all, is suppressed
        warnings = dn.SampledLattice(k=k, beta=beta, epsilon_choice=1).preview(data).warnings
        assert len(warnings) == num
        assert all(str(k) in warning for warning in warnings)
