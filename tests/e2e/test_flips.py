"""Ten flips of every control from two tabs: engine, tabs and recording agree, and it stays so."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page
from playwright.sync_api import TimeoutError as Late

from telemetry.clock import now_ns, sleep_s
from telemetry.database import open_reader
from telemetry.reader import Reader
from tests.e2e.conftest import Server, started

pytestmark = [pytest.mark.browser, pytest.mark.process]

# A device whose steps are cheap here, so that what is busy are the browser and the server.
MODELLED = ("--backend", "modelled", "--device", "l4", "--model", "llama-3.1-8b")
FLIPS, SETTLE_S = 10, 30.0
MORE_UPDATES = 12  # some seconds, in which a timed rerun of each tab says what its browser has


@dataclass
class Control:
    """How a tab shows it, how it is flipped there, and where engine and recording keep it."""

    name: str
    options: list[str]
    read: Callable[[Page], str]
    put: Callable[[Page, str], None]
    clicks: list[tuple[int, str]] = field(default_factory=list)
    took_s: float = 0.0

    def flip(self, tabs: tuple[Page, Page]) -> None:
        """From both tabs in turn: what the tab does not show."""
        began = now_ns()
        for n in range(FLIPS):
            shown = self.read(tabs[n % 2])
            place = self.options.index(shown) if shown in self.options else -1
            wanted = self.options[(place + 1) % len(self.options)]
            self.put(tabs[n % 2], wanted)
            self.clicks.append((n % 2, wanted))
        self.took_s = (now_ns() - began) / 1e9

    @property
    def last(self) -> set[str]:
        """What each tab wished last: the later one that came to the engine holds."""
        return {next(v for tab, v in reversed(self.clicks) if tab == n) for n in (0, 1)}


def _box(name: str, options: list[str]) -> Control:
    # Streamlit keeps a box whose list is open until the choice is made, beside the one that came.
    shown = f"[class*=st-key-{name}]:not([data-retained=true]) input"

    def pick(page: Page, option: str) -> None:
        for _ in range(8):
            try:
                page.click(shown, timeout=1500)
                page.get_by_role("option", name=option, exact=True).click(timeout=1500)
                return
            except Late:  # it was replaced between the two clicks
                page.keyboard.press("Escape")
        pytest.fail(f"{name} cannot be set to {option}")

    def read(page: Page) -> str:
        return page.locator(shown).input_value()

    return Control(name, options, read, pick)


def _scheduler() -> Control:
    def pick(page: Page, option: str) -> None:
        page.get_by_role("radio", name=option, exact=True).click()

    def read(page: Page) -> str:
        shown = "[class*=st-key-scheduler]:not([data-retained=true])"
        return page.locator(f"{shown} [aria-checked=true]").inner_text()

    return Control("scheduler", ["static", "continuous", "chunked"], read, pick)


def _cache() -> Control:
    toggle = "[class*=st-key-prefix_cache]:not([data-retained=true])"

    def read(page: Page) -> str:
        return str(page.locator(f"{toggle} input").is_checked())

    return Control(
        "prefix_cache", ["False", "True"], read, lambda page, _: page.click(f"{toggle} label")
    )


def _controls(page: Page) -> list[Control]:
    kv = page.get_by_role("combobox", name="KV blocks", exact=True).input_value()
    whole = int(kv.split()[-1].replace(",", ""))
    shares = [f"KV {int(whole * share):,}" for share in (1.0, 0.5, 0.25)]
    return [
        _scheduler(),
        _box("max_batch", ["batch 8", "batch 10", "batch 16"]),
        _box("chunk_tokens", ["budget 64", "budget 128", "budget 256"]),
        _cache(),
        _box("kv_blocks", shares),
        _box("arrivals", ["4 streams", "8 streams", "2 streams"]),
        _box("workload", ["steady", "skew", "chat"]),
    ]


def _engine(status: dict[str, Any]) -> dict[str, str]:
    """As the controls would show it."""
    load = status["load"] or {}
    return {
        "scheduler": status["scheduler"],
        "max_batch": f"batch {status['max_batch']}",
        "chunk_tokens": f"budget {status['chunk_tokens']:,}",
        "prefix_cache": str(status["prefix_cache"]),
        "kv_blocks": f"KV {status['kv_blocks']:,}",
        "arrivals": f"{load.get('concurrency')} streams",
        "workload": str(load.get("workload")),
    }


def _shown(page: Page, controls: list[Control]) -> dict[str, str]:
    return {control.name: control.read(page) for control in controls}


def _agreed(server: Server, tabs: tuple[Page, Page], controls: list[Control]) -> dict[str, str]:
    """What engine and both tabs show, as soon as they all show the same."""
    until = now_ns() + int(SETTLE_S * 1e9)
    while True:
        engine = _engine(server.health()["status"])
        seen = [_shown(tab, controls) for tab in tabs]
        if seen == [engine, engine]:
            return engine
        if now_ns() > until:
            pytest.fail(f"engine {engine}\ntabs {seen}", pytrace=False)
        sleep_s(0.1)


def _wait_updates(page: Page) -> None:
    before = page.evaluate("window.__stepscope.updates")
    page.wait_for_function(f"window.__stepscope.updates >= {before + MORE_UPDATES}")


def test_ten_flips_of_every_control_from_two_tabs(
    page: Page, browser: Browser, tmp_path: Path
) -> None:
    with started(tmp_path, MODELLED) as server:
        server.wait_ready()
        other = browser.new_context(viewport={"width": 1280, "height": 720}).new_page()
        try:
            tabs = (page, other)
            for tab in tabs:
                tab.goto(f"{server.url}/scheduling")
                tab.wait_for_selector("[class*=st-key-prefix_cache] input", state="attached")
            controls = _controls(page)
            for control in controls:
                if control.name == "chunk_tokens":
                    _wait_chunked(tabs)
                control.flip(tabs)
                print(f"{control.name}: {FLIPS} flips in {control.took_s:.1f} s")
            told = _agreed(server, tabs, controls)
            for tab in tabs:
                _wait_updates(tab)
            assert _agreed(server, tabs, controls) == told
        finally:
            other.context.close()
        server.stop()
        with open_reader(server.db) as reader:
            _recorded_alike(reader, controls, told)


def _wait_chunked(tabs: tuple[Page, Page]) -> None:
    """Only `chunked` has a token budget: chosen, and seen by both tabs."""
    tabs[0].get_by_role("radio", name="chunked", exact=True).click()
    for tab in tabs:
        tab.wait_for_function(
            "!document.querySelector('[class*=st-key-chunk_tokens] input').disabled"
        )


_KINDS = {"scheduler": "scheduler_switch", "arrivals": "load", "workload": "load"}


def _recorded_alike(reader: Reader, controls: list[Control], told: dict[str, str]) -> None:
    """The newest event of each kind and the newest step say what was shown, and nobody else's."""
    for control in controls:
        changes = _changes(reader, control.name)
        assert changes[-1] == told[control.name]
        if control.name != "scheduler":
            assert told[control.name] in control.last
        clicked = Counter(value for _, value in control.clicks)
        others = Counter(changes) - clicked
        allowed = 1 if control.name in ("scheduler", "arrivals", "workload") else 0
        if control.name not in ("arrivals", "workload"):
            assert others.total() <= allowed, f"{control.name} became {others}, which nobody chose"
    step = reader.row("SELECT * FROM steps ORDER BY step DESC LIMIT 1") or {}
    assert step["scheduler"] == told["scheduler"]
    assert f"KV {step['kv_blocks_total']:,}" == told["kv_blocks"]


def _changes(reader: Reader, name: str) -> list[str]:
    """Each value that the recording says a setting took, as its control shows it."""
    rows = reader.rows(
        "SELECT detail FROM events WHERE kind = $kind ORDER BY t_ns",
        {"kind": _KINDS.get(name, name)},
    )
    details = [json.loads(detail) for (detail,) in rows]
    if name == "workload":
        return [str(d["workload"]) for d in details]
    if name == "arrivals":
        return [f"{d['concurrency']} streams" for d in details]
    form = {"max_batch": "batch {}", "chunk_tokens": "budget {:,}", "kv_blocks": "KV {:,}"}
    return [form.get(name, "{}").format(d["to"]) for d in details]
