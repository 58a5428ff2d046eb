"""Debian's headless Chromium, driven as a person would: keys, clicks, printing; and its console's complaints."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.expected_conditions import visibility_of_element_located
from selenium.webdriver.support.ui import WebDriverWait

LONGEST_S = 600
_EVENTS = ("requestWillBeSent", "loadingFailed")
OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1300,1000")


class Browser:
    """An open browser."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, page: Path, where: str = "") -> None:
        """Load a page afresh and discard earlier complaints."""
        self.driver.get("about:blank")
        self.complaints(), self.requests()
        self.driver.get(f"file://{page}{where}")

    def complaints(self) -> list[str]:
        """Console messages since the page was opened or this was last called."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Requests since the page was opened or this was last called, without those blocked by its policy."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        by_kind = {
            name: [event["params"] for event in events if event["method"] == f"Network.{name}"] for name in _EVENTS
        }
        blocked = {
            parameters["requestId"]
            for parameters in by_kind["loadingFailed"]
            if parameters.get("blockedReason") == "csp"
        }
        sent = [
            parameters["request"]["url"]
            for parameters in by_kind["requestWillBeSent"]
            if parameters["requestId"] not in blocked
        ]
        return [url for url in sent if not url.startswith("about:")]

    def find(self, css: str) -> WebElement:
        """The first matching element."""
        return self.driver.find_element(By.CSS_SELECTOR, css)

    def awaited(self, css: str) -> WebElement:
        """The first matching element, once it is visible: the hashchange event comes a moment after the click."""
        return WebDriverWait(self.driver, LONGEST_S).until(visibility_of_element_located((By.CSS_SELECTOR, css)))

    def texts(self, css: str) -> list[str]:
        """The texts of the visible matching elements."""
        return [element.text for element in self.driver.find_elements(By.CSS_SELECTOR, css) if element.is_displayed()]

    def count(self, css: str) -> int:
        """The number of matching elements."""
        return len(self.driver.find_elements(By.CSS_SELECTOR, css))

    def run(self, script: str, *arguments: object) -> Any:
        """Run a function body in the page and return its result."""
        return self.driver.execute_script(script, *arguments)

    def tell(self, command: str, **parameters: object) -> Any:
        """Send a command of the DevTools protocol."""
        return self.driver.execute_cdp_cmd(command, parameters)

    def look(self, scheme: str = "light", width: int = 1300) -> None:
        """Set the colour scheme and the width in pixels."""
        self.tell("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.tell("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)

    def printed(self) -> bytes:
        """The page as PDF."""
        return base64.b64decode(self.tell("Page.printToPDF", printBackground=True)["data"])


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser that downloads neither a driver nor an update."""
    options = webdriver.ChromeOptions()
    for option in OPTIONS:
        options.add_argument(option)
    options.binary_location = shutil.which("chromium") or "chromium"
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
