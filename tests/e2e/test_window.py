"""The window of steps in a real browser: dragged, clicked, linked, released, and of a past run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page

from telemetry.store import Store
from tests.app.synthetic import RUN_ID, race
from tests.e2e.conftest import Server, started
from tests.e2e.looks import folder, screen, screenshots
from tests.e2e.test_demo import RANGES, counter, open_page, updates, wait_updates
from tests.e2e.windows import (
    STEPS,
    STRIP,
    address,
    click_bar,
    drag,
    follow,
    hold,
    link,
    paused,
    resume,
    steps_of_range,
    wait_drawn,
    wait_following,
    wait_held,
)

pytestmark = [pytest.mark.browser, pytest.mark.process]

PAGES = ("Roofline", "Scheduling", "KV cache", "Requests", "Interference")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A database that holds a run already, beside the live one."""
    into = tmp_path_factory.mktemp("serve")
    store = Store(into / "demo.duckdb")
    race().write(store)
    store.close()
    with started(into) as made:
        made.wait_ready()
        yield made


@pytest.fixture(scope="module")
def tab(browser: Browser, server: Server) -> Iterator[Page]:
    """Live, once its strip is full enough to choose from; one tab, since loading takes seconds."""
    errors: list[str] = []
    with screen(browser) as page:
        page.on("pageerror", lambda e: errors.append(str(e)))
        open_page(page, server)
        page.wait_for_function(
            f"Math.min(...({STRIP}?.data ?? []).slice(0, 2).flatMap(t => t.x)) < -13"
        )
        yield page
    assert not errors


@pytest.fixture
def live(tab: Page) -> Page:
    """That tab on Live, following the newest step."""
    if urlsplit(tab.url).path != "/":
        tab.get_by_role("link", name="Live", exact=True).click()
    tab.wait_for_selector("#ss-strip .main-svg")
    told = "document.querySelector('#ss-window')?.textContent"
    held = tab.wait_for_function(f"/^(held|following)/.exec({told} ?? '')?.[0]").json_value()
    if held == "held":
        follow(tab)
    wait_following(tab)
    wait_updates(tab, 2)
    return tab


def test_it_follows_until_somebody_drags(live: Page) -> None:
    assert live.inner_text("#ss-window") == "following · 30 s"
    first, last = hold(live)
    wait_drawn(live, first, last)
    assert re.fullmatch(r"held [\d.]+ m?s · follow", live.inner_text("#ss-window"))
    assert live.inner_text("#ss-headline").startswith(f"Steps {first:,} to {last:,}, ")
    drawn = live.evaluate(STEPS)
    live.wait_for_function("window.__stepscope.streams.size === 1")  # the one that followed ended
    seen = updates(live)
    live.wait_for_timeout(2500)
    assert live.evaluate(STEPS) == drawn
    assert updates(live) == seen  # what is held stands still: nothing is sent
    assert "run" in address(live)


def test_what_was_dragged_over_is_what_is_held(live: Page) -> None:
    """While it is paused the strip stands still, so both can be compared."""
    paused(live)
    try:
        inner, outer = steps_of_range(live, 0.603, 0.897), steps_of_range(live, 0.597, 0.903)
        drawn = live.evaluate(STEPS)
        first, last = hold(live, 0.6, 0.9)
        assert first <= inner[0]
        assert last >= inner[-1]
        assert all(s < first for s in drawn if s < outer[0])
        assert all(s > last for s in drawn if s > outer[-1])
        wait_drawn(live, first, last)
    finally:
        resume(live)


def test_a_drag_within_it_narrows_it_and_a_double_click_follows(live: Page) -> None:
    first, last = hold(live)
    wait_drawn(live, first, last)
    drag(live, "strip", 0.3, 0.7)
    live.wait_for_function(f"!location.search.includes('first={first}&')")
    inner = wait_held(live)
    assert first < inner[0] <= inner[1] < last
    wait_drawn(live, *inner)
    box = live.locator("#ss-strip .nsewdrag").nth(1).bounding_box()
    assert box is not None
    live.mouse.dblclick(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    live.wait_for_function("!location.search.includes('first=')")
    wait_following(live)


def test_the_window_is_the_same_on_every_page(live: Page) -> None:
    first, last = hold(live)
    for name in PAGES:
        live.get_by_role("link", name=name, exact=True).click()
        live.wait_for_function(
            "path => location.pathname.endsWith(path)", arg=name.lower().replace(" ", "-")
        )
        assert wait_held(live) == (first, last)
        urls = live.evaluate("[...window.__stepscope.streams.keys()]")
        mine = [u for u in urls if name.lower().replace(" ", "-") in u]
        assert mine
        assert all(f"first={first}&last={last}" in url for url in mine)
    live.get_by_role("link", name="Live", exact=True).click()
    assert wait_held(live) == (first, last)
    wait_drawn(live, first, last)


def test_pages_draw_the_window(live: Page) -> None:
    first, last = hold(live)
    live.get_by_role("link", name="Roofline", exact=True).click()
    live.wait_for_selector("#ss-roofline .main-svg")
    wait_held(live)
    drawn = live.evaluate(
        "document.querySelector('#ss-roofline')?.data"
        ".filter(t => ['decode', 'with prefill', 'live'].includes(t.name))"
        ".flatMap(t => t.customdata)"
    )
    assert first <= min(drawn)
    assert max(drawn) == last
    live.get_by_role("link", name="Scheduling", exact=True).click()
    live.wait_for_selector("#ss-gantt .main-svg")
    title = f"seconds before the end of step {last:,}"
    live.wait_for_function(
        "t => document.querySelector('#ss-gantt')?.layout?.xaxis.title.text === t", arg=title
    )


def test_a_colleague_opens_the_same_view_from_the_link(
    live: Page, browser: Browser, server: Server
) -> None:
    first, last = hold(live)
    live.get_by_role("link", name="Scheduling", exact=True).click()
    live.wait_for_selector(
        "#ss-gantt .main-svg"
    )  # the address is that of the page before till then
    wait_held(live)
    with screen(browser) as other:
        other.goto(link(live))
        other.wait_for_selector("#ss-gantt .main-svg")
        assert wait_held(other) == (first, last)
        assert other.inner_text("#ss-headline") == live.inner_text("#ss-headline")
        follow(other)
        assert "first" not in address(other)
        assert wait_held(live) == (first, last)  # a window is a tab's own


def test_follow_shows_the_newest_steps_again(live: Page) -> None:
    _, last = hold(live)
    follow(live)
    live.wait_for_function(f"{STEPS}.at(-1) > {last}")
    assert not {"first", "last", "step", "run"} & set(address(live))
    before = counter(live)
    live.wait_for_function(
        f"+document.querySelector('#ss-counter')?.textContent.replace(/\\D/g, '') > {before}"
    )


def test_the_control_can_be_reached_by_keyboard(live: Page) -> None:
    hold(live)
    live.locator("#ss-window button").focus()
    live.keyboard.press("Enter")
    live.wait_for_function("!location.search.includes('first=')")


def test_a_click_on_a_step_explains_it(live: Page, server: Server) -> None:
    step = click_bar(live)
    wait_held(live)
    live.wait_for_function(
        "s => document.querySelector('#ss-headline')?.textContent.startsWith(s)",
        arg=f"Step {step:,}, ",
    )
    live.wait_for_selector("#ss-answer .shares")
    assert f"Who got what in step {step:,} · " in live.inner_text("#ss-answer")
    titles = live.evaluate(
        "[...document.querySelectorAll('#ss-anatomy .annotation-text')].map(e => e.textContent)"
    )
    assert any(f"selected step {step:,}" in t for t in titles)
    marked = live.evaluate(f"{STRIP}.data.some(t => t.name === 'selected')")
    assert marked
    live.get_by_role("link", name="Roofline", exact=True).click()
    live.wait_for_function(
        "s => document.querySelector('#ss-headline')?.textContent.startsWith(s)",
        arg=f"Step {step:,}: ",
    )
    live.wait_for_function(
        "s => document.querySelector('#ss-roofline')?.data"
        "?.find(t => t.name === 'live').customdata[0] === s",
        arg=step,
    )


def test_while_paused_a_click_says_who_got_what_and_step_moves_on(live: Page) -> None:
    paused(live)
    try:
        newest = counter(live)
        step = click_bar(live)
        live.wait_for_function(
            "s => document.querySelector('#ss-answer')?.textContent.includes(s)",
            arg=f"Who got what in step {step:,}",
        )
        live.get_by_role("button", name="Step", exact=True).click()
        live.wait_for_function("!location.search.includes('first=')")
        live.wait_for_function(
            f"document.querySelector('#ss-counter')?.textContent === 'step {newest + 1:,}'"
        )
    finally:
        resume(live)


def test_a_zoom_on_another_chart_survives_the_choice_of_a_window(live: Page) -> None:
    """Only axes of time or of steps choose: the plane of the roofline still zooms."""
    live.get_by_role("link", name="Roofline", exact=True).click()
    live.wait_for_selector("#ss-roofline .main-svg")
    box = live.locator("#ss-roofline .nsewdrag").first.bounding_box()
    assert box is not None
    live.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 0.2 * box["height"])
    live.mouse.down()
    live.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.7 * box["height"], steps=6)
    live.mouse.up()
    live.wait_for_timeout(300)
    zoomed = live.evaluate(RANGES)
    seen = updates(live)
    live.wait_for_function(f"window.__stepscope.updates > {seen + 3}")
    assert live.evaluate(RANGES) == pytest.approx(zoomed)
    assert "first" not in address(live)


def test_drag_on_an_axis_of_steps(live: Page) -> None:
    live.goto(f"{live.url.split('?')[0]}scheduling?lanes=slots+over+steps")
    live.wait_for_function(
        "document.querySelector('#ss-gantt')?.layout?.xaxis.title.text === 'step'"
    )
    low, high = live.evaluate("document.querySelector('#ss-gantt')?.layout.xaxis.range")
    drag(live, "gantt", 0.25, 0.75)
    first, last = wait_held(live)
    # The axis may have moved on while it was dragged over.
    assert low < first < last < high + (high - low)
    live.wait_for_function(
        "([a, b]) => { const r = document.querySelector('#ss-gantt')?.layout.xaxis.range;"
        "return r[0] === a && r[1] >= b; }",
        arg=[first, last],
    )


def drawn(page: Page) -> None:
    """All of a held Live page with a clicked step."""
    page.wait_for_selector("#ss-answer .shares")
    page.wait_for_selector("#ss-anatomy .main-svg")
    page.wait_for_function(f"({STRIP}?.data ?? []).some(t => t.name === 'selected')")
    page.wait_for_timeout(300)


def test_screenshots_of_a_held_window(
    live: Page, browser: Browser, server: Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    click_bar(live)
    wait_held(live)
    into = folder(tmp_path_factory.mktemp("shots"))
    made = screenshots(browser, link(live), "live-held", into, drawn)
    assert len(made) == 2


def test_a_past_run_opens_at_its_end_and_holds_too(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/?run={RUN_ID}")
    page.wait_for_selector("#ss-strip .main-svg")
    page.wait_for_function("document.querySelector('#ss-counter')?.textContent === 'step 967'")
    assert page.inner_text("#ss-window") == "its last 30 s"
    drag(page, "strip", 0.9, 0.99)
    first, last = wait_held(page)
    assert first < last <= 967
    assert address(page)["run"] == RUN_ID
    assert page.inner_text("#ss-headline").startswith(f"Steps {first:,} to {last:,}, continuous")
    page.locator("#ss-window button", has_text="show its end").click()
    page.wait_for_function("document.querySelector('#ss-counter')?.textContent === 'step 967'")
    assert set(address(page)) == {"run"}


def test_a_window_goes_with_its_run(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/?run={RUN_ID}&first=100&last=140&step=120")
    assert wait_held(page) == (100, 140)
    page.wait_for_function(
        "document.querySelector('#ss-headline')?.textContent.startsWith('Step 120, ')"
    )
    page.get_by_role("combobox", name="Run", exact=True).click()
    page.get_by_role("option", name=re.compile("live run")).click()
    page.wait_for_function("!location.search.includes('first=')")
    page.wait_for_function(
        "document.querySelector('#ss-window')?.textContent.startsWith('following')"
    )
    assert "run" not in address(page)
