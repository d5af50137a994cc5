"""A modelled run in a browser: from the run selector of a running demo, and back to the CPU."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from telemetry.database import open_reader
from tests.e2e.conftest import Server, started
from tests.e2e.test_demo import DRAWN, open_page, wait_updates

pytestmark = [pytest.mark.browser, pytest.mark.process]
BADGE = ".st-key-modelled button"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Starts modelled: it is there in a second, and what is asked of it needs no CPU engine."""
    with started(tmp_path_factory.mktemp("modelled"), H100) as made:
        made.wait_ready()
        yield made


H100 = ("--backend", "modelled", "--device", "h100-sxm", "--model", "llama-3.1-8b")


def choose_run(page: Page, entry: str) -> None:
    page.get_by_role("combobox", name="Run", exact=True).click()
    page.get_by_role("option", name=entry).click()


@pytest.mark.parametrize("name", ["", "roofline", "scheduling"])
def test_every_page_says_modelled_and_moves(page: Page, server: Server, name: str) -> None:
    open_page(page, server, name)
    expect(page.locator(BADGE)).to_contain_text("MODELLED · H100 SXM 80 GB · llama-3.1-8b bf16")
    expect(page.locator("#ss-counter .ss-modelled")).to_have_text("modelled")
    wait_updates(page, 5)
    assert page.locator(DRAWN).count() >= 1
    box = page.locator(BADGE).bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= 1280


def test_the_assumptions_are_one_click_away(page: Page, server: Server) -> None:
    open_page(page, server)
    page.locator(BADGE).click()
    shown = page.locator(".ss-assumed")
    expect(shown).to_contain_text("No such device is here")
    expect(shown).to_contain_text("NVIDIA H100 datasheet (2023)")
    expect(shown).to_contain_text("80.3% of peak")
    wait_updates(page, 5)
    expect(shown).to_be_visible()


def test_a_prompt_gets_text_that_says_it_is_synthetic(page: Page, server: Server) -> None:
    open_page(page, server)
    box = page.get_by_placeholder(re.compile("its text is synthetic"))
    box.fill("Why is the sky blue?")
    box.press("Enter")
    said = page.locator("#ss-answer")
    expect(said).to_contain_text("ended: length", timeout=20_000)
    expect(said.locator(".ss-modelled").first).to_have_text("synthetic")


def texts(page: Page) -> list[str]:
    return page.locator("#ss-stream .row.decode .text").all_inner_texts()


def test_the_requests_stream_their_text(page: Page, server: Server) -> None:
    open_page(page, server)
    expect(page.locator("#ss-stream .ss-modelled")).to_have_text("synthetic text")
    before = texts(page)
    assert before
    page.wait_for_function(
        "was => document.querySelector('#ss-stream .row.decode .text')?.textContent !== was",
        arg=before[0],
    )
    done = page.locator("#ss-stream .row.ended").first
    expect(done).to_contain_text("tokens")
    request = int(done.locator("b").inner_text().removeprefix("r-"))
    assert request >= 0


BESIDE = """name => document.querySelector('#ss-roofline')?.data
    ?.some(t => t.name === name && t.line.dash === 'dash')"""


def test_what_is_compared_is_in_the_address_and_survives_a_reload(
    page: Page, server: Server
) -> None:
    open_page(page, server, "roofline")
    page.get_by_role("button", name="Compare").click()
    page.get_by_role("combobox", name="a device", exact=True).click()
    page.get_by_role("option", name="L4 24 GB", exact=True).click()
    page.wait_for_function(BESIDE, arg="L4 24 GB bf16 compute roof")
    expect(page).to_have_url(re.compile("compare_device="))
    page.reload()
    page.wait_for_function(BESIDE, arg="L4 24 GB bf16 compute roof")
    expect(page.locator("#ss-why")).to_contain_text("On L4 24 GB bf16")


def test_a_new_run_on_another_device_and_the_old_one_is_kept(page: Page, server: Server) -> None:
    open_page(page, server)
    before = server.health()
    choose_run(page, "new run: modelled")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("426,784 tokens of KV cache")
    dialog.get_by_role("combobox", name="Device", exact=True).click()
    page.get_by_role("option", name="NVIDIA L4", exact=False).first.click()
    dialog.get_by_role("combobox", name="Model", exact=False).first.click()
    page.get_by_role("option", name="Llama 3.1 70B", exact=True).click()
    expect(dialog).to_contain_text("do not fit")
    expect(dialog.get_by_role("button", name="Start", exact=True)).to_be_disabled()
    dialog.get_by_role("combobox", name="Model", exact=False).first.click()
    page.get_by_role("option", name="SmolLM2 135M", exact=True).click()
    dialog.get_by_role("button", name="Start", exact=True).click()
    expect(page.locator(BADGE)).to_contain_text("MODELLED · L4", timeout=30_000)
    expect(dialog).to_have_count(0)
    after = server.health()
    assert after["run_id"] != before["run_id"]
    assert after["engine_pid"] != before["engine_pid"]
    assert server.process.poll() is None, "no restart"
    choose_run(page, "modelled H100 SXM 80 GB · llama-3.1-8b")
    expect(page.locator(BADGE)).to_contain_text("H100 SXM 80 GB")


def test_back_to_the_cpu_and_the_file_has_every_run(page: Page, server: Server) -> None:
    open_page(page, server)
    choose_run(page, "new run: this CPU")
    expect(page.locator(".ss-badge")).to_contain_text("measured · CPU", timeout=120_000)
    page.wait_for_function(
        "() => /^step [\\d,]+$/.test(document.querySelector('#ss-counter').textContent)"
    )
    expect(page.locator(".ss-modelled")).to_have_count(0)
    server.stop(60)
    with open_reader(server.db) as reader:
        rows = reader.rows("SELECT clock, device FROM runs ORDER BY started_wall")
    assert [clock for clock, _ in rows] == ["modelled", "modelled", "real"]
