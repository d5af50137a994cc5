"""First light, seen through a browser: what issue 2 must show."""

from __future__ import annotations

import re
import signal

import psutil
import pytest
from playwright.sync_api import Browser, Page

from telemetry.database import open_reader
from tests.e2e.conftest import Server
from tests.e2e.looks import LOOKS, fits, screen, wear
from tests.e2e.standing import paused

pytestmark = [pytest.mark.browser, pytest.mark.process]

DRAWN = ".ss-figure .main-svg"
POINT = """() => {
  const live = document.querySelector('#ss-roofline').data.find(t => t.name === 'live');
  return [live.x[0], live.y[0], live.customdata[0]];
}"""
RANGES = """() => {
  const {xaxis, yaxis} = document.querySelector('#ss-roofline').layout;
  return [...xaxis.range, ...yaxis.range];
}"""


def open_page(page: Page, server: Server, name: str = "") -> None:
    page.goto(f"{server.url}/{name}")
    page.wait_for_selector(DRAWN)


def counter(page: Page) -> int:
    return int(re.sub(r"\D", "", page.inner_text("#ss-counter")))


def updates(page: Page) -> int:
    return int(page.evaluate("window.__stepscope.updates"))


def wait_updates(page: Page, more: int) -> None:
    page.wait_for_function(f"window.__stepscope.updates >= {updates(page) + more}")


def scheduler_of(page: Page) -> str:
    return page.inner_text("#ss-headline").split(",")[0]


def choose(page: Page, label: str, option: str) -> None:
    page.get_by_role("combobox", name=label, exact=True).click()
    page.get_by_role("option", name=option, exact=True).click()


def test_the_demo_opens_and_the_step_counter_advances(page: Page, server: Server) -> None:
    open_page(page, server)
    before = counter(page)
    page.wait_for_function(
        f"+document.querySelector('#ss-counter').textContent.replace(/\\D/g, '') > {before}"
    )
    assert "measured · CPU" in page.inner_text(".ss-badge")
    for place in ("anatomy", "strip", "tiles", "answer"):
        box = page.locator(f"#ss-{place}").bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 722


def test_the_roofline_point_moves(page: Page, server: Server) -> None:
    open_page(page, server, "roofline")
    before = page.evaluate(POINT)
    wait_updates(page, 3)
    after = page.evaluate(POINT)
    assert after[2] > before[2]
    assert after[:2] != before[:2]


def test_a_zoom_survives_ten_updates(page: Page, server: Server) -> None:
    open_page(page, server, "roofline")
    whole = page.evaluate(RANGES)
    box = page.locator("#ss-roofline .nsewdrag").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 0.2 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.7 * box["height"], steps=8)
    page.mouse.up()
    page.wait_for_timeout(300)
    zoomed = page.evaluate(RANGES)
    assert zoomed[1] - zoomed[0] < 0.6 * (whole[1] - whole[0])
    step = page.evaluate(POINT)[2]
    wait_updates(page, 10)
    assert page.evaluate(POINT)[2] > step
    assert page.evaluate(RANGES) == pytest.approx(zoomed)
    page.mouse.dblclick(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"])
    page.wait_for_timeout(600)
    assert page.evaluate(RANGES)[:2] == pytest.approx(whole[:2])


def test_a_switch_shows_and_in_other_tabs(page: Page, server: Server, browser: Browser) -> None:
    other = browser.new_page()
    try:
        open_page(other, server)
        open_page(page, server)
        assert scheduler_of(page) == "continuous"
        page.get_by_role("radio", name="static").click()
        page.wait_for_function(
            "document.querySelector('#ss-headline').textContent.startsWith('static')"
        )
        other.wait_for_function(
            "document.querySelector('[class*=st-key-scheduler] [aria-checked=true]').textContent"
            " === 'static'",
            timeout=10_000,
        )
        page.wait_for_function(
            "[...document.querySelectorAll('#ss-strip .annotation-text')]"
            ".some(e => e.textContent.includes('static'))"
        )
    finally:
        other.close()
    page.get_by_role("radio", name="continuous").click()
    page.wait_for_function(
        "document.querySelector('#ss-headline').textContent.startsWith('continuous')"
    )


def values(page: Page, *labels: str) -> list[str]:
    boxes = (page.get_by_role("combobox", name=label, exact=True) for label in labels)
    return [box.input_value() for box in boxes]


def type_in(page: Page, label: str, text: str, delay_ms: float = 0) -> None:
    """Slowly where it is asked for: the page is updated every second while somebody types."""
    box = page.get_by_role("combobox", name=label, exact=True)
    box.click()
    box.press_sequentially(text, delay=delay_ms)
    page.keyboard.press("Enter")


def wait_mark(page: Page, text: str) -> None:
    page.wait_for_function(
        "text => [...document.querySelectorAll('#ss-strip .annotation-text')]"
        ".some(e => e.textContent === text)",
        arg=text,
    )


def test_limits_of_a_step_change_while_it_runs_in_all_tabs(
    page: Page, server: Server, browser: Browser
) -> None:
    other = browser.new_page()
    limits = ("Max batch", "Token budget", "KV blocks")
    try:
        open_page(other, server)
        open_page(page, server)
        budget = page.get_by_role("combobox", name="Token budget")
        assert budget.is_disabled()
        page.get_by_role("radio", name="chunked").click()
        page.wait_for_function(
            "!document.querySelector('[class*=st-key-chunk_tokens] input').disabled", timeout=10_000
        )
        type_in(page, "Token budget", "48")
        wait_mark(page, "budget 48")
        type_in(page, "KV blocks", "400 blocks", delay_ms=300)
        wait_mark(page, "KV 400 blocks")
        page.locator("[class*=st-key-prefix_cache] label").click()
        wait_mark(page, "prefix cache on")
        other.wait_for_function(
            "document.querySelector('[class*=st-key-prefix_cache] input').checked", timeout=10_000
        )
        assert values(other, *limits) == values(page, *limits) == ["batch 8", "budget 48", "KV 400"]
        assert "of 400" in page.inner_text("#ss-tiles .tile:nth-child(4)")
        type_in(page, "KV blocks", "99999999")
        told = page.get_by_test_id("stToast").first
        told.wait_for()
        assert "is no number of KV blocks: write 1 to" in told.inner_text()
        page.get_by_role("radio", name="continuous").click()
        page.wait_for_function(
            "document.querySelector('#ss-headline').textContent.startsWith('continuous')"
        )
        assert values(page, *limits) == ["batch 8", "budget 48", "KV 400"]
    finally:
        other.close()


@pytest.mark.parametrize("name", ["", "roofline", "scheduling"])
def test_a_page_fits_one_screen_in_both_looks(browser: Browser, server: Server, name: str) -> None:
    with screen(browser) as page:
        open_page(page, server, name)
        page.wait_for_selector("[class*=st-key-prefix_cache]")
        for look in LOOKS:
            wear(page, look)
            right = page.evaluate(
                "Math.max(...[...document.querySelectorAll('.st-key-toolbar *, .st-key-controls *')"
                "].map(e => e.getBoundingClientRect().right))"
            )
            assert right <= 1265
            fits(page)


def test_a_prompt_answers_in_readable_english(page: Page, server: Server) -> None:
    open_page(page, server)
    page.get_by_test_id("stChatInputTextArea").fill("What is the capital of France?")
    page.keyboard.press("Enter")
    page.wait_for_function(
        "document.querySelector('#ss-answer .answer .ended') && "
        "document.querySelector('#ss-answer .answer .asked').textContent.includes('France')"
    )
    said = page.inner_text("#ss-answer .said")
    assert "Paris" in said
    assert re.fullmatch(r"[\x20-\x7E\n’“”–—é]+", said)


def test_pause_stops_the_counter_and_step_moves_it_by_one(page: Page, server: Server) -> None:
    open_page(page, server)
    with paused(page):
        held = counter(page)
        page.wait_for_timeout(1000)
        assert counter(page) == held
        assert page.inner_text("#ss-headline").startswith(f"Paused at step {held:,}.")
        assert "Who got what" in page.inner_text("#ss-answer")
        page.get_by_role("button", name="Step").click()
        page.wait_for_function(
            f"+document.querySelector('#ss-counter').textContent.replace(/\\D/g, '') === {held + 1}"
        )
    page.wait_for_function(
        f"+document.querySelector('#ss-counter').textContent.replace(/\\D/g, '') > {held + 2}"
    )


def test_scheduling_draws_slots_and_navigation_keeps_the_engine(page: Page, server: Server) -> None:
    open_page(page, server)
    engine = server.health()["engine_pid"]
    page.get_by_role("link", name="Scheduling").click()
    page.wait_for_selector("#ss-gantt .main-svg")
    bars = page.evaluate(
        "document.querySelector('#ss-gantt').data.find(t => t.name === 'decode').x.length"
    )
    assert bars > 0
    page.reload()
    page.wait_for_selector("#ss-gantt .main-svg")
    assert server.health()["engine_pid"] == engine


def test_a_lost_stream_comes_back(page: Page, server: Server) -> None:
    open_page(page, server)
    page.evaluate("[...window.__stepscope.streams.values()][0].source.close()")
    page.evaluate("[...window.__stepscope.streams.values()][0].retry()")
    seen = updates(page)
    page.wait_for_function(f"window.__stepscope.updates > {seen + 2}")


def test_a_link_to_the_normalised_roofline_opens_it(page: Page, server: Server) -> None:
    """Button, chart and headline follow the address at once, not from the next click on."""
    open_page(page, server, "roofline?scale=normalised")
    page.wait_for_function(
        "document.querySelector('#ss-roofline').layout?.xaxis.title.text.includes('ridge')"
    )
    streams = page.evaluate("[...window.__stepscope.streams.keys()]")
    assert all("scale=normalised" in url for url in streams if "/roofline" in url)


def test_a_step_by_kernel_and_the_lab_are_tabs_of_one_page(page: Page, server: Server) -> None:
    """Real kernel times fill the bar from 0 to the end; the address keeps the tab and the phase."""
    open_page(page, server, "kernels?kernels_of=Mixed")
    page.wait_for_selector(".ks table")
    page.wait_for_function(
        "document.querySelector('#ss-kernel-table').textContent.startsWith('Mixed')"
    )
    whole = page.evaluate(
        "document.querySelector('#ss-kernel-share').data.flatMap(t => t.y.map((y, i) =>"
        " y === 'decode' ? t.x[i] : 0)).reduce((a, b) => a + b)"
    )
    assert whole == pytest.approx(100, abs=0.1)
    fits(page)
    page.get_by_role("radio", name="Contract lab").click()
    page.wait_for_function("window.__stepscope?.kernels?.drawn > 0")
    assert "tab=Contract+lab" in page.url
    page.get_by_role("radio", name="Step by kernel").click()
    page.wait_for_selector(".ks table")
    assert "input-tokens" not in page.url
    page.get_by_role("radio", name="Decode").click()
    page.wait_for_function(
        "document.querySelector('#ss-kernel-table').textContent.startsWith('Decode')"
    )


def test_nothing_was_lost_when_it_ends(page: Page, server: Server) -> None:
    """Last: empties the engine, ends the server, and reads what it recorded."""
    open_page(page, server)
    choose(page, "Load", "no load")
    page.wait_for_function(
        "document.querySelector('#ss-headline').textContent.startsWith('Idle for')", timeout=60_000
    )
    running = page.inner_text("#ss-tiles .tile:nth-child(2) .value")
    assert running.startswith("0 of")
    engine = server.health()["engine_pid"]
    # With a stream still open. uvicorn ends by the signal it was sent, after the clean-up.
    assert server.stop() in (0, -signal.SIGTERM)
    assert not psutil.pid_exists(engine)
    with open_reader(server.db) as reader:
        order = reader.frame(
            "SELECT scheduler FROM (SELECT step, scheduler, lag(scheduler) OVER (ORDER BY step) "
            "AS before FROM steps) WHERE before IS DISTINCT FROM scheduler ORDER BY step"
        )
        switched = ["continuous", "static", "continuous", "chunked", "continuous"]
        assert list(order["scheduler"]) == switched
        lost = reader.value(
            "SELECT count(*) FROM requests WHERE finish_reason IS NULL "
            "OR finish_reason NOT IN ('stop', 'length')"
        )
        assert lost == 0
        assert reader.value("SELECT count(*) FROM requests") > 4
        missing = reader.value(
            "SELECT count(*) FROM requests r WHERE output_tokens <> (SELECT count(*) FROM tokens t "
            "WHERE t.run_id = r.run_id AND t.request_id = r.request_id)"
        )
        assert missing == 0
