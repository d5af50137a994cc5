"""A real server with a real engine, and a real Chromium to look at it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Error, Page, sync_playwright

from telemetry.clock import now_ns, sleep_s

BROWSERS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
]
START_S = 180.0
TOLD_CHARS = 2_000  # of a page and of a log, in the report of a failure


def find_browser() -> str | None:
    named = os.environ.get("STEPSCOPE_CHROMIUM")
    return named or next((p for p in map(shutil.which, BROWSERS) if p), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = find_browser()
    if path is None:
        pytest.fail(
            "no Chromium found: install Debian's chromium (apt-get install chromium) "
            "or name one in STEPSCOPE_CHROMIUM",
            pytrace=False,
        )
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=path, args=FLAGS, headless=True)
        yield opened
        opened.close()


@dataclass
class Server:
    """`stepscope demo` on a free port, recording to a file of its own."""

    process: subprocess.Popen[str]
    port: int
    db: Path
    log: Path
    seen: dict[str, Any] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def health(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/stepscope/health", timeout=10) as answer:
            facts: dict[str, Any] = json.load(answer)
        return facts

    def wait_ready(self) -> None:
        until = now_ns() + int(START_S * 1e9)
        while now_ns() < until:
            if self.process.poll() is not None:
                pytest.fail(f"the server ended:\n{self.log.read_text()[-2000:]}", pytrace=False)
            try:
                self.seen = self.health()
            except OSError:
                self.seen = {}
            if self.seen.get("phase") == "failed":
                pytest.fail(f"the engine failed: {self.seen}", pytrace=False)
            if self.seen.get("steps", 0) > 5:
                return
            sleep_s(0.3)
        pytest.fail(f"not ready after {START_S:g} s: {self.seen}", pytrace=False)

    def stop(self, timeout_s: float = 20.0) -> int:
        """SIGTERM, as a service manager would; -> the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def started(folder: Path, options: Sequence[str] = ()) -> Iterator[Server]:
    """A server that may still be loading its model."""
    port, db, log = free_port(), folder / "demo.duckdb", folder / "server.log"
    command = [str(Path(sys.executable).with_name("stepscope")), "demo", "--port", str(port)]
    command += [
        "--db",
        str(db),
        "--workload",
        "steady",
        "--concurrency",
        "4",
        "--max-batch",
        "8",
        *options,
    ]
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, text=True, cwd=folder)
    try:
        yield Server(process, port, db, log)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with started(tmp_path_factory.mktemp("serve")) as made:
        made.wait_ready()
        yield made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure tells what was on the screen and what the server said: on CI nobody can look."""
    report = yield
    if report.when == "call" and report.failed and isinstance(item, pytest.Function):
        for name, value in item.funcargs.items():
            if isinstance(value, Browser):
                opened = [page for context in value.contexts for page in context.pages]
                report.sections += [("on a screen", _screen(page)) for page in opened]
            if isinstance(value, Server):
                report.sections.append((f"said by {name}", value.log.read_text()[-TOLD_CHARS:]))
    return report


@contextlib.contextmanager
def told(page: Page) -> Iterator[Page]:
    """A failure tells what was on this page, which is closed before anybody asks."""
    try:
        yield page
    except Exception as error:
        error.add_note(_screen(page))
        raise


def _screen(page: Page) -> str:
    """The page's words, and how its streams stand."""
    try:
        streams = page.evaluate(
            "JSON.stringify([...(window.__stepscope?.streams ?? [])].map(([url, stream]) =>"
            " [url, stream.source?.readyState, window.__stepscope.updates]))"
        )
        return f"{page.url}\n{streams}\n{page.inner_text('body')[:TOLD_CHARS]}"
    except Error as error:
        return f"cannot be read: {error}"


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 720}, color_scheme="light")
    context.set_default_timeout(45_000)
    opened = context.new_page()
    errors: list[str] = []
    opened.on("pageerror", lambda e: errors.append(str(e)))
    yield opened
    context.close()
    assert not errors
