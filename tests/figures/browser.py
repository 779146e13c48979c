"""A real browser without a window, and what a page did in it."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.wait import WebDriverWait

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE = 60  # Seconds until a page that draws nothing counts as broken.


def program(name: str) -> str:
    """The path of an installed program; a test that needs it fails without it."""
    found = shutil.which(name)
    if found is None:
        pytest.fail(f"{name} is not installed; on Debian: apt-get install chromium chromium-driver")
    return found


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Chrome]:
    """Chromium with a fresh profile that logs its console and every request."""
    options = ChromeOptions()
    options.binary_location = program("chromium")
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=Service(program("chromedriver")))
    try:
        driver.get("about:blank")
        # Without a window system no page has the focus, and none of its elements is told of it.
        driver.execute_cdp_cmd("Emulation.setFocusEmulationEnabled", {"enabled": True})
        yield driver
    finally:
        driver.quit()


def open_page(driver: Chrome, path: Path, width: int) -> None:
    """Show a page at a width, in CSS pixels, and wait until all its panels are drawn."""
    for log in ("browser", "performance"):
        driver.get_log(log)
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    driver.get(path.resolve().as_uri())
    WebDriverWait(driver, PATIENCE).until(
        lambda page: page.execute_script("return document.documentElement.hasAttribute('data-drawn')")
    )


def requests(driver: Chrome) -> list[str]:
    """The addresses asked for since the page was opened, except those that carry their content."""
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    sent = [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]
    return [address for address in sent if not address.startswith("data:")]


def complaints(driver: Chrome) -> list[dict[str, Any]]:
    """What the console says since the page was opened."""
    return driver.get_log("browser")
