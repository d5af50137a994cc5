"""The pages that need no run in a real browser, on a server without any engine: What-if, and the
contract lab of Kernels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from app.serve_config import SERVE_VARIABLE
from telemetry.clock import now_ns, sleep_s
from tests.e2e.conftest import START_S, free_port

pytestmark = [pytest.mark.browser, pytest.mark.process]

ENTRY = Path(__file__).resolve().parents[2] / "app" / "main.py"
DRAWN = """() => {
  const at = window.__stepscope?.whatIf;
  return at?.drawn > 0 && at.drawn === at.asked && at.compared === at.asked;
}"""
BAR = """name => {
  const trace = document.querySelector('#ss-overlap').data.find(t => t.name === name);
  return trace && trace.x[0];
}"""
SEEN = """() => {
  const figures = ['overlap', 'budget', 'curves', 'phases'].map(id =>
    document.querySelector('#ss-' + id).data.map(t => [t.name, [...t.x], [...t.y]]));
  const texts = ['headline', 'slo', 'fit', 'facts', 'table', 'footnotes', 'assumptions'].map(id =>
    document.querySelector('#ss-' + id).textContent);
  const inputs = [...document.querySelectorAll('.wi input, .wi select')].map(e => e.value);
  return { figures, texts, inputs };
}"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose settings nobody can read: no engine, no run, and still this page."""
    port, log = free_port(), tmp_path_factory.mktemp("what-if") / "server.log"
    command = [sys.executable, "-m", "streamlit", "run", str(ENTRY), "--server.port", str(port)]
    command += ["--server.address", "127.0.0.1", "--server.headless", "true"]
    with log.open("w") as out:
        broken = os.environ | {SERVE_VARIABLE: "{}"}
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd=log.parent, env=broken)
    try:
        wait_health(f"http://127.0.0.1:{port}", process, log)
        yield f"http://127.0.0.1:{port}/what-if"
    finally:
        process.terminate()
        process.wait(20)


def wait_health(root: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = now_ns() + int(START_S * 1e9)
    while now_ns() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{root}/stepscope/health", timeout=10) as answer:
                if json.load(answer)["phase"] == "failed":
                    return
        except OSError:
            pass
        sleep_s(0.2)
    pytest.fail(f"the server did not come:\n{log.read_text()[-2000:]}", pytrace=False)


def open_page(page: Page, url: str, query: str = "") -> None:
    page.goto(url + query)
    drawn(page)


def drawn(page: Page) -> None:
    page.wait_for_function(DRAWN)


def headline(page: Page) -> str:
    return page.inner_text("#ss-headline")


def drag_to(page: Page, share: float) -> None:
    """Move the slider's thumb to a share of its track."""
    box = page.get_by_role("slider", name="Batch").bounding_box()
    assert box is not None
    inner = box["width"] - 16  # the thumb's centre stays half its width inside
    page.mouse.move(box["x"] + 8, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 8 + share * inner, box["y"] + box["height"] / 2, steps=6)
    page.mouse.up()
    drawn(page)


def test_the_first_chart_and_its_answer_stand_without_scrolling(page: Page, url: str) -> None:
    open_page(page, url)
    assert headline(page).startswith("Reading takes 42.1 ms, the math 0.143 ms: memory-bound")
    for place in ("overlap", "budget", "slo", "fit", "curves", "phases", "facts"):
        box = page.locator(f"#ss-{place}").bounding_box()
        assert box is not None
        assert box["height"] > 20
        assert box["y"] + box["height"] <= 720
    assert "MODELLED" in page.inner_text("#ss-badge")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_the_slider_makes_compute_catch_up(page: Page, url: str) -> None:
    open_page(page, url)
    weights, math = page.evaluate(BAR, "weights"), page.evaluate(BAR, "math")
    drag_to(page, 0.5)
    batch = int(page.get_by_label("Batch, exactly").input_value())
    assert 30 <= batch <= 34
    assert page.evaluate(BAR, "weights") == weights
    assert page.evaluate(BAR, "math") == pytest.approx(batch * math, rel=1e-2)
    assert f"batch={batch}" in page.url
    drag_to(page, 1.0)
    assert "compute-bound" in headline(page)


def test_arrows_move_the_slider(page: Page, url: str) -> None:
    open_page(page, url)
    page.get_by_role("slider", name="Batch").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    drawn(page)
    assert page.get_by_label("Batch, exactly").input_value() == "4"
    page.keyboard.press("ArrowLeft")
    drawn(page)
    assert "batch=3" in page.url


def test_a_link_reproduces_the_page(page: Page, url: str, browser: Browser) -> None:
    open_page(page, url)
    page.get_by_role("button", name="16 × 32k").click()
    page.get_by_label("Tensor parallel").select_option("2")
    page.get_by_label("TPOT target").fill("25")
    page.locator("#ss-badge").click()
    page.get_by_label("matmul reaches").fill("0.7")
    page.get_by_label("matmul reaches").press("Tab")
    page.get_by_role("button", name="l40s", exact=True).evaluate("e => e.click()")
    drag_to(page, 0.62)
    before = page.evaluate(SEEN)
    other = browser.new_page(viewport={"width": 1280, "height": 720})
    try:
        open_page(other, page.url)
        assert other.evaluate(SEEN) == before
        assert other.url == page.url
    finally:
        other.close()
    assert "l40s" in page.url


def test_presets_show_what_they_set(page: Page, url: str) -> None:
    open_page(page, url)
    chip = page.get_by_role("button", name="50 ms SLO: 122")
    chip.click()
    drawn(page)
    assert chip.get_attribute("aria-pressed") == "true"
    assert page.get_by_label("Model", exact=True).input_value() == "llama-3.1-8b"
    assert page.get_by_label("Context").input_value() == "4000"
    assert "At most 122 sequences" in page.inner_text("#ss-slo")
    page.get_by_role("button", name="4K prefill").click()
    drawn(page)
    assert chip.get_attribute("aria-pressed") == "false"
    assert page.get_by_role("radio", name="prefill").get_attribute("aria-checked") == "true"
    assert "compute-bound" in headline(page)


def test_what_would_fit_and_rows_are_taken_over_by_a_click(page: Page, url: str) -> None:
    open_page(page, url)
    page.locator("#ss-fit").get_by_role("button", name="2 × NVIDIA H100").click()
    drawn(page)
    assert page.get_by_label("Tensor parallel").input_value() == "2"
    assert "do not fit" not in page.inner_text("#ss-fit")
    row = page.locator("#ss-table tr", has_text="H200").filter(has_text="fp8")
    row.get_by_role("button").click()
    drawn(page)
    assert page.get_by_label("Device", exact=True).input_value() == "h200"
    assert page.get_by_label("Weights", exact=True).input_value() == "fp8"
    assert "H200" in page.inner_text("#ss-table .wi-here")


def test_assumptions_are_one_click_away(page: Page, url: str) -> None:
    open_page(page, url)
    assert not page.locator("#ss-assumptions").is_visible()
    page.locator("#ss-badge").click()
    text = page.inner_text("#ss-assumptions")
    assert "N_total * b" in text
    assert "stepscope whatif --model llama-3.1-70b" in text
    page.get_by_label("overhead").fill("10")
    drawn(page)
    assert "52.1 ms a step" in headline(page)
    page.keyboard.press("Escape")
    assert not page.locator("#ss-assumptions").is_visible()


def test_what_cannot_be_is_told_and_can_be_mended(page: Page, url: str) -> None:
    open_page(page, url, "?device=h100-sxn")
    assert headline(page).startswith("This cannot be answered. Did you mean 'h100-sxm'")
    assert not page.locator("#ss-overlap").is_visible()
    page.get_by_label("Device", exact=True).select_option("h200")
    drawn(page)
    assert "Reading takes" in headline(page)
    assert page.locator("#ss-overlap").is_visible()
    page.get_by_label("Context").fill("-5")
    drawn(page)
    assert "context is -5" in headline(page)
    page.get_by_label("Context").fill("0")
    page.locator("#ss-badge").click()
    page.get_by_label("matmul reaches").fill("2")
    drawn(page)
    assert "matmul_fraction is 2" in headline(page)
    page.get_by_label("matmul reaches").fill("0.8")
    drawn(page)
    assert "Reading takes" in headline(page)


def test_the_state_is_kept_while_another_page_is_looked_at(page: Page, url: str) -> None:
    open_page(page, url, "?model=llama-3.1-8b&batch=48&context=1000")
    before = page.evaluate(SEEN)
    page.get_by_role("link", name="Roofline").click()
    page.wait_for_selector(".wi", state="detached")
    page.evaluate("Object.assign(window.__stepscope.whatIf, { asked: 0, drawn: 0 })")
    page.get_by_role("link", name="What-if").click()
    drawn(page)
    assert page.evaluate(SEEN) == before
    assert "batch=48" in page.url


def test_dark_and_light_differ_in_colours_only(url: str, browser: Browser) -> None:
    seen: dict[str, Any] = {}
    for look in ("light", "dark"):
        context = browser.new_context(
            viewport={"width": 1280, "height": 720}, color_scheme="dark" if look == "dark" else None
        )
        opened = context.new_page()
        open_page(opened, url, "?batch=8&context=512")
        colour = "document.querySelector('#ss-overlap').data[0].marker.color"
        seen[look] = (opened.evaluate(SEEN), opened.evaluate(colour))
        context.close()
    assert seen["light"][0] == seen["dark"][0]
    assert (seen["light"][1], seen["dark"][1]) == ("#22326A", "#2865C8")


def test_a_lost_server_is_told_and_found_again(page: Page, url: str) -> None:
    open_page(page, url)
    page.route("**/stepscope/still/**", lambda route: route.abort())
    page.get_by_label("Device", exact=True).select_option("b200")
    page.wait_for_selector(".wi[data-connection=lost]")
    page.unroute("**/stepscope/still/**")
    page.wait_for_selector(".wi[data-connection=open]")
    drawn(page)
    assert "17.6 ms" in headline(page)


# --- the contract lab ---

LAB_DRAWN = """() => {
  const at = window.__stepscope?.kernels;
  return at?.drawn > 0 && at.drawn === at.asked;
}"""
LAB = """() => ['headline', 'slots', 'message', 'title', 'bytes', 'elements', 'routes', 'tried']
  .map(id => document.querySelector('#ss-' + id).innerHTML)"""
OUTLINED = """() => {
  const within = (e, box) => { const { left, right, top, bottom } = e.getBoundingClientRect();
    return left >= box.left && right <= box.right && top >= box.top && bottom <= box.bottom; };
  const box = document.querySelector('.kn-outline').getBoundingClientRect();
  return [...document.querySelectorAll('.kn-written')].filter(e => within(e, box))
    .map(e => e.textContent);
}"""


def open_lab(page: Page, url: str, query: str = "") -> None:
    page.goto(url.replace("/what-if", "/kernels") + query)
    if not query and "tab=" not in url:
        page.get_by_role("radio", name="Contract lab").click()
    page.wait_for_function(LAB_DRAWN)


def pick(page: Page, argument: str, dtype: str) -> None:
    page.get_by_role("radiogroup", name=argument).get_by_role("radio", name=dtype).click()
    page.wait_for_function(LAB_DRAWN)


def test_the_contract_lab_follows_the_error(page: Page, url: str, browser: Browser) -> None:
    open_lab(page, url)
    assert page.evaluate(OUTLINED) == ["5", "2"]  # one read of 8 bytes over two cells of 4
    for place in ("slots", "message", "bytes", "elements", "routes"):
        box = page.locator(f"#ss-{place}").bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 720
    link = page.get_by_role("button", name="Copy link").bounding_box()
    assert link is not None
    assert link["x"] + link["width"] <= 1280
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    pick(page, "input_tokens", "int64")
    assert "hash_indices_table is int32" in page.inner_text("#ss-message")
    page.get_by_role("button", name="Cast all to int64: the error moves").click()
    page.wait_for_function(LAB_DRAWN)
    assert "token_expert_indices is int64, must be int32" in page.inner_text("#ss-message")
    pick(page, "token_expert_indices", "int32")
    assert "passes router" in page.inner_text("#ss-message")
    assert page.get_by_role("button", name="The fix").get_attribute("aria-pressed") == "true"
    other = browser.new_page(viewport={"width": 1280, "height": 720})
    try:
        open_lab(other, page.url, "")
        assert other.evaluate(LAB) == page.evaluate(LAB)
    finally:
        other.close()


def test_a_read_that_is_chosen_by_the_keyboard_keeps_it(page: Page, url: str) -> None:
    open_lab(page, url, "?topk-indices=int64&input-tokens=int64&hash-indices-table=int32")
    second = page.locator("#ss-bytes button").nth(1)
    second.focus()
    page.keyboard.press("Enter")
    page.wait_for_function(LAB_DRAWN)
    assert page.evaluate(OUTLINED) == ["1", "7"]
    assert second.evaluate("e => e === document.activeElement")
    assert "show=hash_indices_table&element=1" in page.url
