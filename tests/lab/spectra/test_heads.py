"""What is measured of a run, and what is kept with it."""

import itertools
from dataclasses import replace

import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal
from tests.lab.ablation.models import decoder, examples

from spectrope.core.errors import ConfigError, UnsupportedError
from spectrope.encodings.base import ENCODINGS
from spectrope.lab.job import train
from spectrope.lab.probes.kernel import EncodingKernel, encoding_kernels, kernel_spectrum
from spectrope.lab.quantities.base import QUANTITIES
from spectrope.lab.sizes import fullest
from spectrope.lab.spectra.heads import Measurement, correlation_table, longest, spectrum
from spectrope.lab.spectra.kernels import kernel_tables, numbered, own_tables
from spectrope.lab.training.scales import experiment
from spectrope.spectral.kernel import rope_kernel
from spectrope.spectral.operator import ToeplitzOperator
from spectrope.store import open_run

CPU = torch.device("cpu")
FEW = Measurement(examples=12, draws=9)
PLACES = list(itertools.product(range(2), range(4)))  # Of the heads of a run.


@pytest.fixture(scope="module", params=["rope", "t5", "nope"])
def run(request, tmp_path_factory):
    one = experiment("distance", request.param, epochs=1, n_examples=100)
    small = replace(one, model=replace(one.model, n_layers=2, n_heads=4, d_ff=16))
    return train(small, tmp_path_factory.mktemp("runs"), CPU)


def test_the_tables_of_each_encoding(run):
    name = run.config["encoding_name"]
    tables = spectrum(run, CPU, FEW)
    own = {"rope": {"bands"}, "t5": set(), "nope": set()}[name]
    kernels = set() if name == "nope" else {"lags", "symbol", "extremes", "distances"}
    assert set(tables) == {"spectrum", "shares", "kernel", "eigenvalues", "szego"} | own | kernels
    for table, data in tables.items():
        assert_frame_equal(run.frame(f"{table}-12-examples-9-draws"), data)
    assert not run.has_frame("spectrum")
    measured = tables["spectrum"]
    assert measured.select("layer", "head").rows() == PLACES
    assert measured["toeplitz"].is_between(0, 1).all()
    assert (measured["toeplitz_low"] <= measured["toeplitz"]).all()
    assert (measured["p_adjusted"] >= measured["p_value"]).all()
    for control in ("toeplitz_shuffled", "toeplitz_off"):
        assert (measured[f"{control}_low"] <= measured[control]).all()
        assert measured[control].is_between(0, 1).all()
    assert (measured["toeplitz_off"] == measured["toeplitz"]).all() == (name == "nope")
    assert measured["factorisation"].null_count() == (0 if name == "rope" else 8)
    positions = measured["positions"][0]
    assert tables["kernel"].height == 8 * positions
    sums = tables["kernel"].group_by("layer", "head").agg(pl.col("effect").sum())
    assert sums["effect"].abs().max() < 1e-9
    assert tables["eigenvalues"].height == 2 * 8 * positions
    check_spectra(tables)
    assert tables["shares"].height == 6
    if name == "rope":
        totals = tables["bands"].group_by("layer", "head").agg(pl.col("share").sum())
        assert totals["share"].to_list() == pytest.approx([1.0] * 8)


def check_spectra(tables):
    """The spectra of one head, and their distance, against the dense matrices of its kernel."""
    place = (pl.col("layer") == 1) & (pl.col("head") == 2)
    effects = torch.tensor(tables["kernel"].filter(place)["effect"], dtype=torch.float64)
    lag = torch.arange(len(effects))
    even = effects[(lag[:, None] - lag).abs()]
    values = {"eigenvalue": torch.linalg.eigvalsh(even), "singular value": torch.linalg.svdvals(even.tril())}
    for kind, expected in values.items():
        rows = tables["eigenvalues"].filter(place & (pl.col("kind") == kind))
        assert rows["rank"].to_list() == list(range(1, len(effects) + 1))
        assert rows["value"].to_list() == pytest.approx(expected.sort().values.tolist(), abs=1e-9)
        assert rows["symbol"].is_sorted()
        (row,) = tables["szego"].filter(place & (pl.col("kind") == kind)).rows(named=True)
        assert row["distance"] >= (rows["value"] - rows["symbol"]).abs().mean() - 1e-12
        assert row["relative"] == pytest.approx(row["distance"] / (rows["symbol"][-1] - rows["symbol"][0]))
        assert row["theorem_applies"] == (row["tail_share"] <= 0.05)


@pytest.mark.parametrize("run", ["rope", "nope"], indirect=True)
def test_an_ablated_run_has_correlations_and_the_rest_as_before(run):
    drops = pl.DataFrame({"layer": la, "head": h, "drop": 1.5**h + la} for la, h in PLACES)
    run.write_frame("ablation", drops)
    tables = spectrum(run, CPU, FEW)
    table = tables.pop("correlation")
    bands = {f"band_{band}" for band in range(8)} if "bands" in tables else set()
    assert bands <= set(table["quantity"]) <= set(QUANTITIES) | bands
    assert set(table["scope"]) == {"heads", "within layers"}
    assert (table["rho_low"] <= table["rho_high"]).all()
    assert_frame_equal(run.frame(f"correlation{FEW.mark}"), table)
    run.remove("ablation")
    run.write_frame("ablation-10-examples", drops)
    assert_frame_equal(spectrum(run, CPU, FEW)["correlation"], table)
    run.remove("ablation-10-examples")
    again = spectrum(run, CPU, FEW)
    assert not run.has_frame(f"correlation{FEW.mark}")
    for name, data in tables.items():
        assert_frame_equal(data, again[name])


def test_a_quantity_that_orders_heads_as_drops_do_is_found():
    rows = [(layer, head) for layer in range(3) for head in range(8)]
    heads = pl.DataFrame(rows, schema=["layer", "head"], orient="row")
    drop = pl.col("head") ** 2 - 20.0 * pl.col("layer")
    ablation = heads.with_columns(drop=drop)
    measured = heads.with_columns(
        **{name: pl.lit(None, pl.Float64) for name in QUANTITIES if name != "toeplitz"},
        toeplitz=pl.col("head") * 1.0,
    )
    found = correlation_table(measured, ablation).rows_by_key("scope", named=True, unique=True)
    assert found["within layers"]["rho"] == pytest.approx(1)
    assert found["within layers"]["p_adjusted"] < 0.01
    assert found["heads"]["rho"] < 0.9
    assert correlation_table(measured.head(3), ablation).is_empty()


def test_the_energy_of_a_band_is_set_against_the_drops():
    rows = [(layer, head) for layer in range(2) for head in range(8)]
    heads = pl.DataFrame(rows, schema=["layer", "head"], orient="row")
    measured = heads.with_columns(**dict.fromkeys(QUANTITIES, pl.lit(None, pl.Float64)))
    ablation = heads.with_columns(drop=pl.col("head") + 0.1 * pl.col("layer"))
    share = pl.col("head") / 16
    low, high = (heads.with_columns(band=b, share=s) for b, s in ((0, share), (1, 1 - share)))
    table = correlation_table(measured, ablation, pl.concat([low, high]))
    found = dict(table.filter(scope="within layers").select("quantity", "rho").rows())
    assert found == {"band_0": pytest.approx(1), "band_1": pytest.approx(-1)}


def test_the_longest_examples_share_their_least_length():
    data = examples(30)
    batch, n = longest(data, 5)
    assert sorted(batch.lengths.tolist()) == sorted(data.lengths.tolist())[-5:]
    assert n == batch.lengths.min()
    with pytest.raises(ConfigError, match="need at least two examples of at least two tokens; got 1 of"):
        longest(data[:1], 5)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [("examples", 1, "examples must be at least 4"), ("draws", 0, "draws must be at least 1")],
)
def test_measurements_are_checked(field, value, message):
    with pytest.raises(ConfigError, match=f"Measurement.{message}; got {value}"):
        Measurement(**{field: value})


def test_the_usual_size_has_no_mark_and_the_largest_other_one_stands_in_for_it(tmp_path):
    assert Measurement().mark == ""
    run, table = open_run(tmp_path, {}, 1), pl.DataFrame({"drop": [1.0]})
    assert fullest(run, "ablation") is None
    for name in ("ablation-mean", "ablation-9-examples", "ablation-10-examples", "deposit"):
        run.write_frame(name, table)
    assert fullest(run, "ablation") == "-10-examples"
    run.write_frame("ablation", table)
    assert fullest(run, "ablation") == ""


class TestKernels:
    """What an encoding brings by itself."""

    def test_alibi_has_the_extremes_of_its_distance_matrix(self):
        encoding = ENCODINGS.config("alibi")(n_heads=2).build()
        lag = torch.arange(50.0, dtype=torch.float64)
        for kernel in encoding_kernels(encoding, 50, 2, 16, causal=True):
            slope = encoding.slopes[kernel.heads[0]].double()
            values = torch.linalg.eigvalsh(-slope * (lag[:, None] - lag).abs())
            found = kernel_spectrum(kernel)
            assert found.smallest_estimate == pytest.approx(values[0].item())
            assert found.largest_estimate == pytest.approx(values[-1].item())
            assert found.symbol.lower_bound < values[0] < values[-1] < found.symbol.upper_bound

    @pytest.mark.parametrize("n", [10, 200])
    def test_rope_has_the_kernel_of_its_frequencies_once_for_all_heads(self, n):
        encoding = ENCODINGS.config("rope")().build()
        (kernel,) = encoding_kernels(encoding, n, 4, 16, causal=True)
        assert kernel.heads == (0, 1, 2, 3)
        dense = torch.linalg.eigvalsh(rope_kernel(encoding.angles.frequencies.value, n).dense())
        found = kernel_spectrum(kernel)
        assert found.largest_estimate == pytest.approx(dense[-1].item())
        assert found.smallest_estimate == pytest.approx(dense[0].item(), abs=1e-9)
        assert found.symbol.lower_bound >= 0

    def test_bidirectional_biases_are_symmetrised(self):
        encoding = ENCODINGS.config("relative")(n_heads=1, max_length=9).build()
        (kernel,) = encoding_kernels(encoding, 9, 1, 16, causal=False)
        table = encoding.table[:, 0].double()
        torch.testing.assert_close(kernel.values, (table[8:] + table[:9].flip(0)) / 2)

    @pytest.mark.parametrize("name", ["nope", "learned", "path", "cope"])
    def test_encodings_without_one_are_refused(self, name):
        with pytest.raises(UnsupportedError, match="has no Toeplitz matrix of its own"):
            encoding_kernels(ENCODINGS.config(name)().build(), 12, 4, 16, causal=True)

    def test_tables_hold_every_lag_and_certified_bounds(self):
        kernels = encoding_kernels(ENCODINGS.config("alibi")(n_heads=4).build(), 40, 4, 16, causal=True)
        tables = kernel_tables(kernels)
        assert tables["lags"].height == 4 * 40
        joined = tables["symbol"].join(tables["extremes"], on=["heads", "kind"])
        assert (joined["symbol"] <= joined["upper_bound"]).all()
        assert (joined["symbol"] >= joined["lower_bound"]).all()
        assert (joined["fejer"] <= joined["largest_estimate"] + 1e-9).all()

    def test_distances_from_symbols_come_with_their_rate_and_whether_a_theorem_speaks_of_them(self):
        def distances(column):
            kernel = EncodingKernel((0,), "bias", ToeplitzOperator.hermitian(column))
            return kernel_tables([kernel])["distances"].partition_by("spectrum", as_dict=True).values()

        n = 300
        for table in distances(0.5 ** torch.arange(n, dtype=torch.float64)):
            assert table["n"].to_list() == [64, 128, 256]
            assert table["theorem_applies"].all()
            assert table["rate"][0] == pytest.approx(1, abs=0.1)
            assert (table["scaled"] == table["n"] * table["distance"]).all()
        for table in distances(-torch.arange(n, dtype=torch.float64)):
            assert not table["theorem_applies"].any()
            assert table["rate"][0] < 0.1
        for table in distances(torch.zeros(3)):
            assert table["n"].to_list() == [2, 3]
            assert table["rate"].is_null().all()

    def test_layers_that_share_an_encoding_share_its_rows(self):
        assert own_tables(decoder("alibi"), 12)["extremes"]["layers"].unique().to_list() == ["0-2"]
        assert own_tables(decoder("relative"), 12)["extremes"].height == 12
        assert own_tables(decoder("nope"), 12) == {}

    def test_numbers_count_from_zero(self):
        assert [numbered(members) for members in ([2], [0, 1, 2], [0, 3])] == ["2", "0-2", "0, 3"]
