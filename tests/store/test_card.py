"""What a run shows of itself."""

from tests.figures.synthetic import make_run

import spectrope as sp
from spectrope.lab.runs import run_for
from spectrope.store import open_run


def test_a_finished_run_tells_what_it_is_and_what_it_reached(tmp_path):
    run = make_run(tmp_path, "rope")
    line, card = repr(run), run._repr_html_()
    assert line.startswith(f"<Run {run.id}: distance, rope, mini, controlled, seed 0, training ")
    assert f"held out {100 * run.manifest['test_accuracy']:.1f} %" in line
    assert "\n" not in line
    assert f'<td style="text-align:left">{", ".join(run.frames)}</td>' in card


def test_names_are_escaped_and_a_list_has_a_line_per_run(tmp_path):
    whole = make_run(tmp_path, "rope")
    run = open_run(tmp_path, {**whole.config, "encoding_name": "<script>"}, 1)
    assert "&lt;script&gt;" in run._repr_html_()
    assert "<script>" not in run._repr_html_()
    assert len(repr([run, run]).split("<Run ")) == 3


def test_an_unfinished_run_says_so(tmp_path):
    begun = run_for(sp.experiment("distance", "nope", epochs=1, n_examples=60), tmp_path)
    assert repr(begun) == f"<Run {begun.id}: distance, nope, mini, controlled, seed 0, unfinished>"


def test_a_damaged_run_says_what_is_wrong(tmp_path):
    run = make_run(tmp_path, "rope")
    (run.path / "config.json").write_text("{}")
    assert "its config.json describes none" in repr(run)
    assert "damaged" in run._repr_html_()
