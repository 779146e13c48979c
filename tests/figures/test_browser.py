"""The page in a real browser: everything is drawn, nothing is asked for, nothing sticks out."""

import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait
from tests.figures.browser import PATIENCE, browser, complaints, open_page, program, requests
from tests.figures.synthetic import make_run, make_store

from spectrope.figures import write_report

MARKS = """
return [...document.querySelectorAll(".panel")].map((panel) => {
  const frame = panel.querySelector("svg").getBoundingClientRect();
  return [...panel.querySelectorAll("g.role-mark")].flatMap((group) => [...group.children].map((mark) => {
    const box = mark.getBoundingClientRect();
    return {
      layer: group.getAttribute("class").match(/(\\w+)_marks/)[1],
      path: mark.getAttribute("d") || "",
      fill: mark.getAttribute("fill") || "",
      outside: Math.max(frame.left - box.left, box.right - frame.right, frame.top - box.top,
                        box.bottom - frame.bottom),
    };
  }));
});
"""
CUT = """
const frame = document.documentElement.getBoundingClientRect();
return [...document.querySelectorAll("text")].filter((text) => {
  const box = text.getBoundingClientRect();
  return box.width && (box.left < frame.left || box.right > frame.right || box.top < frame.top ||
                       box.bottom > frame.bottom);
}).map((text) => text.textContent);
"""
COMMITTED = sorted((Path(__file__).parents[2] / "docs").rglob("*.svg"))
pytestmark = pytest.mark.sampled("page in a browser")
SPECS = "return JSON.parse(document.getElementById('specs').textContent)"
OVERFLOW = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Reports on 8 encodings and 2 tasks, by number of seeds."""
    root = tmp_path_factory.mktemp("store")
    return {n: write_report(make_store(root, seeds=range(n)), root / f"{n}.html") for n in (1, 3)}


@dataclass(frozen=True)
class View:
    """What one report shows at one width."""

    path: Path
    specs: list[dict[str, Any]]
    panels: list[list[dict[str, Any]]]
    overflow: int
    complaints: list[dict[str, Any]]
    requests: list[str]
    resources: int


@pytest.fixture(scope="module", params=[(1, 400), (1, 1200), (3, 400), (3, 1200)], ids=str)
def view(request, driver, pages) -> View:
    n_seeds, width = request.param
    open_page(driver, pages[n_seeds], width)
    return View(
        path=pages[n_seeds],
        specs=driver.execute_script(SPECS),
        panels=driver.execute_script(MARKS),
        overflow=driver.execute_script(OVERFLOW),
        complaints=complaints(driver),
        requests=requests(driver),
        resources=driver.execute_script("return performance.getEntriesByType('resource').length"),
    )


def expected(spec: dict[str, Any], layer: dict[str, Any]) -> tuple[int, int | None]:
    """Marks that a layer must draw and, where it joins rows to lines, the vertices of all its lines."""
    rows, kind = layer.get("data", spec["data"])["values"], layer["mark"]["type"]
    if kind not in ("line", "area"):
        return len(rows), None
    fields = {layer["encoding"].get(channel, {}).get("field") for channel in ("color", "detail")} - {None}
    joined = {tuple(row.get(field) for field in sorted(fields)) for row in rows}
    return len(joined), len(rows) * (2 if kind == "area" else 1)


def assert_sound(driver: Chrome, path: Path, width: int) -> int:
    """Show a page: every row is drawn inside its panel, nothing sticks out, is complained of or asked for.

    Returns:
        Number of panels.
    """
    open_page(driver, path, width)
    specs, panels = driver.execute_script(SPECS), driver.execute_script(MARKS)
    assert len(specs) == len(panels)
    for spec, marks in zip(specs, panels, strict=True):
        for layer in spec["layer"]:
            own = [mark for mark in marks if mark["layer"] == layer["name"]]
            n_marks, n_vertices = expected(spec, layer)
            assert len(own) == n_marks, (spec["description"], layer["name"])
            if n_vertices is not None:
                assert sum(len(re.findall("[ML]", mark["path"])) for mark in own) == n_vertices
    assert [mark for marks in panels for mark in marks if mark["outside"] >= 1] == []
    assert driver.execute_script(OVERFLOW) <= 0
    assert complaints(driver) == []
    assert requests(driver) == [path.resolve().as_uri()]
    return len(panels)


def test_every_row_is_drawn(view):
    assert len(view.specs) == len(view.panels) == 2 + 4 + 4 + 16 + 16 + 14
    for spec, marks in zip(view.specs, view.panels, strict=True):
        assert {mark["layer"] for mark in marks} <= {layer["name"] for layer in spec["layer"]}
        for layer in spec["layer"]:
            drawn = [mark for mark in marks if mark["layer"] == layer["name"]]
            n_marks, n_vertices = expected(spec, layer)
            assert len(drawn) == n_marks, (spec["description"], layer["name"])
            if n_vertices is not None:
                vertices = sum(len(re.findall("[ML]", mark["path"])) for mark in drawn)
                assert vertices == n_vertices, (spec["description"], layer["name"])


def test_every_mark_lies_inside_its_panel(view):
    outside = [mark for marks in view.panels for mark in marks if mark["outside"] >= 1]
    assert outside == []


def test_cells_have_the_colours_of_the_gradient_beside_them(view):
    heat = [
        pair for pair in zip(view.specs, view.panels, strict=True) if pair[0]["layer"][0]["name"] == "cells"
    ]
    for spec, marks in heat:
        scale = spec["layer"][0]["encoding"]["color"]["scale"]
        stops = [[int(stop[at : at + 2], 16) for at in (1, 3, 5)] for stop in scale["range"]]
        cells = [mark for mark in marks if mark["layer"] == "cells"]
        for row, cell in zip(spec["data"]["values"], cells, strict=True):
            drawn = [int(value) for value in re.findall(r"\d+", cell["fill"])]
            expected = [
                np.interp(row["drop"], scale["domain"], channel) for channel in zip(*stops, strict=True)
            ]
            assert drawn == pytest.approx(expected, abs=1)


def test_the_page_fits_its_window(view):
    assert view.overflow <= 0


def test_the_console_is_quiet(view):
    assert view.complaints == []


def test_nothing_is_asked_of_the_network(view):
    assert view.requests == [view.path.resolve().as_uri()]
    assert view.resources == 0


def opacities(driver: Chrome) -> set[str]:
    """How opaque the lines of the accuracy panels are."""
    lines = driver.find_elements(By.CSS_SELECTOR, "#curves .runs_marks path")
    return {line.get_attribute("opacity") or "1" for line in lines}


def test_the_policy_forbids_the_network(driver, pages):
    open_page(driver, pages[1], 1200)
    blocked = driver.execute_async_script(
        "const done = arguments[0];"
        "document.addEventListener('securitypolicyviolation', (event) => done(event.effectiveDirective));"
        "fetch('https://example.invalid/').catch(() => {});"
    )
    assert blocked == "connect-src"


def test_a_point_shows_its_exact_values(driver, pages):
    open_page(driver, pages[1], 1200)
    panel = driver.find_element(By.CSS_SELECTOR, "#curves .panel")
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", panel)
    points = panel.find_elements(By.CSS_SELECTOR, ".points_marks path")
    ActionChains(driver).move_to_element(points[-1]).perform()
    visible = "#vg-tooltip-element.visible"
    WebDriverWait(driver, 20).until(lambda page: page.find_elements(By.CSS_SELECTOR, visible))
    shown = driver.find_element(By.CSS_SELECTOR, visible).text.split("\n")
    row = driver.execute_script(SPECS)[2]["data"]["values"][-1]
    assert shown[:3] == ["encoding rope", "seed 0", "epoch 6"]
    assert float(shown[3].removeprefix("accuracy, % ")) == pytest.approx(row["accuracy"], abs=5e-5)


def hover(driver, element):
    ActionChains(driver).move_to_element(element).perform()


POINT = {
    "pointer": hover,
    "keyboard": lambda driver, element: driver.execute_script("arguments[0].focus()", element),
}
LEAVE = {
    "pointer": lambda driver, element: hover(driver, driver.find_element(By.TAG_NAME, "h3")),
    "keyboard": lambda driver, element: driver.execute_script("arguments[0].blur()", element),
}


@pytest.mark.parametrize("by", POINT)
def test_pointing_at_an_encoding_fades_the_others(driver, pages, by):
    open_page(driver, pages[1], 1200)
    entry = driver.find_element(By.CSS_SELECTOR, "#curves .legend [data-encoding='rope']")
    assert opacities(driver) == {"1"}
    POINT[by](driver, entry)
    WebDriverWait(driver, PATIENCE).until(lambda _: len(opacities(driver)) == 2)
    faint = driver.find_elements(By.CSS_SELECTOR, "#curves .runs_marks path[opacity='0.08']")
    assert len(faint) == 4 * 7
    LEAVE[by](driver, entry)
    WebDriverWait(driver, PATIENCE).until(lambda _: opacities(driver) == {"1"})


DOWNLOADS = """
window.saved = [];
URL.createObjectURL = (blob) => { blob.text().then((text) => window.saved.push(text)); return "#"; };
"""


def test_a_figure_offers_its_data_and_its_command(driver, pages):
    open_page(driver, pages[1], 1200)
    driver.execute_script(DOWNLOADS)
    buttons = driver.find_elements(By.CSS_SELECTOR, "#heatmap .tools button")
    assert [button.text for button in buttons] == ["Data as CSV", "Data as JSON", "Copy command"]
    for button in buttons[:2]:
        driver.execute_script("arguments[0].click()", button)
    WebDriverWait(driver, PATIENCE).until(lambda page: len(page.execute_script("return window.saved")) == 2)
    csv, data = sorted(driver.execute_script("return window.saved"), key=lambda text: text.startswith("["))
    rows = [row for row in json.loads(data) if "drop" in row]
    table = pl.read_csv(io.StringIO(csv))
    assert table.height == len(json.loads(data))
    assert table["drop"].to_list()[:5] == pytest.approx([row["drop"] for row in rows[:5]])
    command = driver.execute_script("return document.querySelector('#heatmap .tools').dataset.command")
    assert command.endswith("--figure heatmap --out heatmap.svg")


def test_tables_are_sorted_by_their_headings_and_filtered(driver, pages):
    open_page(driver, pages[1], 1200)
    table = driver.find_element(By.CSS_SELECTOR, "#table table")
    head = table.find_elements(By.CSS_SELECTOR, "thead th")[1]

    def shown() -> list[float]:
        cells = table.find_elements(By.CSS_SELECTOR, "tbody tr:not([hidden]) td.strong")
        return [float(cell.text) for cell in cells]

    before = shown()
    for sense in ("ascending", "descending"):
        head.find_element(By.TAG_NAME, "button").click()
        assert head.get_attribute("aria-sort") == sense
        assert shown() == sorted(before, reverse=sense == "descending")
    driver.execute_script(
        "const head = document.querySelectorAll('#table thead th')[1];"
        "head.querySelector('button').textContent = 'layer.head';"
        "const texts = ['0.10', '0.9', '–', '1.2'];"
        "document.querySelectorAll('#table tbody tr').forEach((row, i) => {"
        "row.cells[1].textContent = texts[i % 4]; })"
    )
    column = "return [...document.querySelectorAll('#table tbody tr')].map((row) => row.cells[1].textContent)"
    for heads in (["0.9", "0.10", "1.2", "–"], ["1.2", "0.10", "0.9", "–"]):
        head.find_element(By.TAG_NAME, "button").click()
        assert list(dict.fromkeys(driver.execute_script(column))) == heads
    driver.find_element(By.CSS_SELECTOR, "#table input[type=search]").send_keys("alibi")
    assert len(shown()) == 1


def test_in_the_dark_the_page_is_dark_and_figures_stay_on_a_light_ground(driver, pages):
    scheme = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", scheme)
    try:
        open_page(driver, pages[1], 1200)
        ground = "return getComputedStyle(document.querySelector(arguments[0])).backgroundColor"
        assert driver.execute_script(ground, ":root") == "rgb(27, 26, 24)"
        assert driver.execute_script(ground, "figure") == "rgb(253, 253, 251)"
        assert driver.execute_script(OVERFLOW) <= 0
    finally:
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_names_are_shown_and_never_run(driver, tmp_path):
    name = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
    runs = [make_run(tmp_path / "runs", encoding, name) for encoding in (name, "rope")]
    open_page(driver, write_report(runs, tmp_path / "page.html"), 400)
    assert driver.execute_script("return window.hacked") is None
    assert name in driver.find_element(By.CSS_SELECTOR, "#curves h3").text
    assert name in driver.find_element(By.CSS_SELECTOR, ".legend").text
    assert complaints(driver) == []
    assert driver.execute_script(OVERFLOW) <= 0


def test_a_missing_browser_fails_and_names_its_packages(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(pytest.fail.Exception, match="apt-get install chromium chromium-driver"):
        program("chromium")


@pytest.mark.sampled
@pytest.mark.parametrize("figure", COMMITTED, ids=lambda figure: figure.stem)
def test_no_label_of_a_committed_figure_is_cut_off(driver, figure):
    driver.get(figure.as_uri())
    assert not driver.execute_script(CUT)
