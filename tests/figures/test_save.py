"""Figures as files."""

import json
import re
import struct
import xml.etree.ElementTree as ET
from itertools import pairwise

import altair as alt
import pytest
from tests.figures.synthetic import TRAINED, make_run, make_store, save_figure

from spectrope.core.errors import ConfigError, StoreError, UnknownNameError
from spectrope.figures import FIGURES, write_report
from spectrope.figures.save import written_svg
from spectrope.figures.spec import LEGEND, THEME
from spectrope.store import files


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("store"), ("nope", "rope"), ("distance", "counting"))


@pytest.mark.sampled
@pytest.mark.parametrize("name", TRAINED)
def test_every_figure_is_drawn_as_svg_with_its_names(runs, tmp_path, name):
    path = save_figure(runs, name, tmp_path / f"{name}.svg")
    text = "".join(ET.parse(path).getroot().itertext())
    assert all(word in text for word in ("distance", "counting", "nope", "rope"))


def test_png_has_two_pixels_to_the_point(runs, tmp_path):
    svg = ET.parse(save_figure(runs, "heatmap", tmp_path / "figure.svg")).getroot()
    data = save_figure(runs, "heatmap", tmp_path / "figure.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    size = [2 * float(svg.get(side, 0)) for side in ("width", "height")]
    assert [width, height] == pytest.approx(size, abs=2)


def test_pdf_and_specification(runs, tmp_path):
    assert save_figure(runs, "violin", tmp_path / "new" / "figure.PDF").read_bytes().startswith(b"%PDF")
    spec = json.loads(save_figure(runs, "violin", tmp_path / "figure.json").read_text())
    assert len(spec["vconcat"]) == 2


def test_a_page_asks_the_network_for_nothing(runs, tmp_path):
    page = save_figure(runs, "curves", tmp_path / "figure.html").read_text(encoding="utf-8")
    assert "vegaEmbed" in page
    assert "<script src" not in page


def test_no_name_in_a_run_folder_becomes_a_script(tmp_path):
    name = "</script><script>alert(1)</script><!--"
    run = make_run(tmp_path, name)
    page = save_figure([run], "accuracy", tmp_path / "figure.html").read_text(encoding="utf-8")
    assert name not in page
    assert "<script>alert" not in page
    assert page.count("</script>") == 2  # the library's and the specification's
    found = re.search(r"const spec = (\{.*\});\n", page)
    spec = json.loads(save_figure([run], "accuracy", tmp_path / "figure.json").read_text())
    assert found is not None
    assert json.loads(found.group(1)) == spec
    assert name in json.dumps(spec)


def test_another_suffix_is_refused(runs, tmp_path):
    with pytest.raises(ConfigError, match=r"saved as .png, .svg, .pdf, .html, .json; got 'figure.gif'"):
        save_figure(runs, "curves", tmp_path / "figure.gif")


def test_an_unknown_figure_is_refused_with_the_nearest(runs, tmp_path):
    with pytest.raises(UnknownNameError, match="unknown figure 'curve'; did you mean curves"):
        save_figure(runs, "curve", tmp_path / "figure.svg")


def test_a_figure_that_the_runs_lack_data_for_is_refused(tmp_path):
    run = make_run(tmp_path, "rope")
    run.remove("ablation")
    with pytest.raises(StoreError, match="draws table 'ablation', which none of these runs has"):
        save_figure([run], "violin", tmp_path / "figure.svg")


def test_a_figure_without_panels_is_refused_and_no_section(tmp_path):
    run = make_run(tmp_path, "rope")
    with pytest.raises(StoreError, match="figure 'versus' has nothing to draw for these runs"):
        save_figure([run], "versus", tmp_path / "figure.svg")
    page = write_report([run], tmp_path / "page.html").read_text(encoding="utf-8")
    assert FIGURES["heatmap"].title in page
    assert FIGURES["versus"].title not in page


def test_a_failed_save_keeps_the_old_file(runs, tmp_path, monkeypatch):
    path = save_figure(runs, "accuracy", tmp_path / "figure.svg")
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", full)
    with pytest.raises(StoreError, match="the disk is full"):
        save_figure(runs, "curves", path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["figure.svg"]


def test_a_file_in_place_of_the_folder_is_one_line(runs, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="a file stands where a folder should"):
        save_figure(runs, "accuracy", tmp_path / "file" / "figure.svg")


def test_labels_keep_apart_and_long_names_are_not_cut():
    name = "n" * 60
    values = [{"rate": rate, "encoding": name} for rate in (0.0045, 0.009, 0.018)]
    chart = alt.Chart(alt.Data(values=values), width=300, height=100).mark_point()
    chart = chart.encode(x=alt.X("rate:Q", scale=alt.Scale(type="log")), color="encoding:N")
    svg = written_svg(chart.to_dict() | {"config": THEME | {"legend": LEGEND}})
    assert f">{name}</text>" in svg
    ticks = re.findall(r'middle" transform="translate\(([\d.]+),18\)"[^>]*opacity="1">([\d.]+)<', svg)
    assert len(ticks) > 3
    half = {text: 6 * len(text) / 2 for _, text in ticks}  # Digits of 11 pixels are 6 wide.
    for (left, first), (right, second) in pairwise(ticks):
        assert float(right) - float(left) > half[first] + half[second]
