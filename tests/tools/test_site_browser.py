"""The documentation site builds without a warning, and its pages work in a browser without a network."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait
from tests.figures.browser import PATIENCE, browser, complaints, requests
from tests.figures.test_browser import OVERFLOW

ROOT = Path(__file__).parents[2]

PAGES = (
    "index",
    "tutorials/find-the-heads",
    "how-to/own-encoding",
    "reference/api/encodings",
    "reference/commands/claims",
    "reference/tables",
    "reference/glossary",
    "explanation/replication",
    "explanation/ledger",
    "gallery/index",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages, built once for all test processes; notebooks run in a test of their own."""
    folder = tmp_path_factory.getbasetemp()
    shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    out = shared / "site"
    with FileLock(shared / "site.lock"):
        if not (done := out / "done").exists():
            command = [sys.executable, "-m", "tools.site", "--out", str(out), "-D", "nb_execution_mode=off"]
            built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
            assert built.returncode == 0, built.stderr
            done.touch()
    return out / "html"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


def show(driver: Chrome, address: str, width: int) -> None:
    for log in ("browser", "performance"):
        driver.get_log(log)
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    driver.get(address)


@pytest.mark.parametrize("width", [400, 1280])
def test_pages_fit_their_window_and_ask_nothing_of_the_network(site, driver, width):
    for name in PAGES:
        show(driver, (site / f"{name}.html").as_uri(), width)
        assert driver.execute_script(OVERFLOW) <= 0, name
        assert not [one for one in complaints(driver) if one["level"] != "INFO"], name
        assert not [address for address in requests(driver) if not address.startswith("file:")], name


@pytest.mark.parametrize(("words", "place"), [("yarn", "encodings"), ("confidence_sequence", "stats")])
def test_the_site_is_searched_without_a_server(site, driver, words, place):
    show(driver, f"{(site / 'search.html').as_uri()}?q={words}", 1280)
    found = "#search-results li a"

    def listed(page: Chrome) -> bool:
        links = page.find_elements(By.CSS_SELECTOR, found)
        return any(place in (link.get_attribute("href") or "") for link in links)

    WebDriverWait(driver, PATIENCE, ignored_exceptions=[StaleElementReferenceException]).until(listed)


def test_a_search_for_an_own_encoding_shows_its_how_to_page_first(site, driver):
    show(driver, f"{(site / 'search.html').as_uri()}?q=own+encoding", 1280)
    found = "#search-results li a"
    enough = lambda page: len(page.find_elements(By.CSS_SELECTOR, found)) >= 5  # noqa: E731
    WebDriverWait(driver, PATIENCE).until(enough)
    first = driver.find_elements(By.CSS_SELECTOR, found)[:5]
    assert any("how-to/own-encoding" in (link.get_attribute("href") or "") for link in first)


def test_no_name_with_an_at_sign_is_taken_for_an_address(site):
    assert not [page for page in site.rglob("*.html") if 'href="mailto:' in page.read_text(encoding="utf-8")]


def test_recipes_and_notebooks_can_be_downloaded(site):
    offered = {path.name for path in (site / "_downloads").rglob("*.*")}
    assert {"rope-base-500.json", "audit-a-checkpoint.ipynb", "find-the-heads.ipynb"} <= offered


def test_long_tables_are_sorted_and_filtered(site, driver):
    show(driver, (site / "explanation" / "replication.html").as_uri(), 1280)
    table = driver.find_element(By.CSS_SELECTOR, "article table")
    field = driver.find_element(By.CSS_SELECTOR, "article input.filter")
    field.send_keys("dropout")
    shown = table.find_elements(By.CSS_SELECTOR, "tbody tr:not([hidden])")
    assert 0 < len(shown) < len(table.find_elements(By.CSS_SELECTOR, "tbody tr"))
    assert all("dropout" in row.text.lower() for row in shown)
    table.find_element(By.CSS_SELECTOR, "thead button").click()
    assert table.find_element(By.CSS_SELECTOR, "thead th").get_attribute("aria-sort") == "ascending"
