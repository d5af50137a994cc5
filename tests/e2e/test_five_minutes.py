"""The five-minute demo as somebody gives it, scene by scene, on the engine of this machine.

What each page draws is held against the recording in tests of its own; here the beats must come.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from app.scenes import SCENES
from telemetry.clock import NS_PER_S, sleep_s
from tests.e2e.conftest import Server

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.timeout(600)]

SLOW_MS = 120_000  # of a machine whose cores are taken; each wait ends when it is met
STORY = "Write a short story about a lighthouse keeper."
SAID = "document.querySelector('#ss-answer .said')?.textContent.length"
HEADLINE = "document.querySelector('#ss-headline').textContent"
# The median of the trail: no prompt that came beside one of its decodes.
INTENSITY = """(() => {
  const named = (document.querySelector('#ss-roofline')?.data ?? []).map(t => [t.name ?? '', t.x]);
  const xs = [...(named.find(([name]) => /^last \\d+ steps$/.test(name))?.[1] ?? [])];
  return xs.sort((a, b) => a - b)[xs.length >> 1] ?? null;
})()"""
CAP = "document.querySelector('#ss-roofline').data.find(t => t.name === 'KV cap')?.x[0]"
# Of one side: how many steps the injected prompt took and the worst gap that it is blamed for, from
# the table; the worst gap of all and a usual one, from the figure. All in ms.
SIDE = """([name, axis]) => {
  const mine = document.querySelector('#ss-interference').data.filter(t => t.xaxis === axis);
  const ys = named => mine.filter(t => named(t.name ?? '')).flatMap(t => [...t.y]);
  const usual = ys(n => n === 'gaps').sort((a, b) => a - b);
  const ms = text => parseFloat(text) * (text.endsWith(' s') ? 1e3 : 1);
  const injected = { steps: 0, blamed: 0 };
  let side = '';
  for (const row of document.querySelectorAll('#ss-blame tbody tr')) {
    const cells = [...row.children].map(cell => cell.textContent);
    if (cells.length < 10) cells.unshift('');  // a side alone has no name
    side = cells[0] || side;
    if (side !== name || !cells[1].endsWith('injected') || +cells[3] <= injected.steps) continue;
    Object.assign(injected, { steps: +cells[3], blamed: ms(cells[5]) });
  }
  return { ...injected, usual: usual[usual.length >> 1] ?? 0,
    worst: Math.max(0, ...ys(n => n.startsWith('bad gaps'))) };
}"""
RACED = """() => {
  const data = document.querySelector('#ss-race').data.filter(t => t.type === 'bar');
  return data.filter(t => t.name === 'padding').map(t => t.x.length);
}"""


def test_the_demo_runs_from_a_prompt_to_an_h100(page: Page, server: Server) -> None:
    page.set_default_timeout(SLOW_MS)
    page.goto(server.url)
    page.wait_for_selector("#ss-strip .main-svg")
    a_prompt_is_answered_as_it_is_generated(page)
    high = the_point_climbs(page)
    contexts_bring_it_down(page, high)
    one_prompt_freezes_all_and_chunks_do_not(page, server)
    the_race_pads_on_one_side(page)
    an_h100_is_there(page, server)


def play(page: Page, name: str) -> None:
    """Choose a scene; its caption says what to look for."""
    scenes(page).click()
    page.get_by_role("option", name=name).click()
    expect(caption(page, name)).to_be_visible(timeout=SLOW_MS)


def scenes(page: Page) -> Locator:
    return page.get_by_role("combobox", name="Scene", exact=True)


def caption(page: Page, name: str) -> Locator:
    return page.get_by_test_id("stToast").filter(has_text=SCENES[name].look_for)


def load(page: Page) -> str:
    return page.get_by_role("combobox", name="Load", exact=True).input_value()


def a_prompt_is_answered_as_it_is_generated(page: Page) -> None:
    """Chosen by keyboard; its text grows while it comes."""
    scenes(page).focus()
    page.keyboard.type("Type a")
    expect(page.get_by_role("option")).to_have_count(1)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(caption(page, "Type a prompt")).to_be_visible(timeout=SLOW_MS)
    page.get_by_test_id("stChatInputTextArea").fill(STORY)
    page.keyboard.press("Enter")
    page.wait_for_function(f"{SAID} > 0")
    said = page.evaluate(SAID)
    page.wait_for_function(f"{SAID} > {said} && !document.querySelector('#ss-answer .ended')")
    tokens = "document.querySelector('#ss-strip').data.find(t => t.name === 'decode tokens').y"
    assert page.evaluate(f"Math.max(...{tokens})") >= 2, "it shares its steps with other streams"


def the_point_climbs(page: Page) -> float:
    """From one stream to 32 by itself; the intensity of the steps, FLOP/byte."""
    play(page, "Climb the roof")
    page.wait_for_function(f"{INTENSITY} !== null && {INTENSITY} < 6")
    low = float(page.evaluate(INTENSITY))
    page.wait_for_function(
        "document.querySelector('[class*=st-key-arrivals] input').value === '32 streams'"
    )
    page.wait_for_function(f"{INTENSITY} > 3 * {low}")
    assert load(page) == "32 streams"
    return float(page.evaluate(INTENSITY))


def contexts_bring_it_down(page: Page, high: float) -> None:
    """As many streams: what caps them all comes down, and the point with it."""
    before = float(page.evaluate(CAP))
    play(page, "Long contexts")
    page.wait_for_function(
        f"{CAP} < {before / 2} && {INTENSITY} < {0.8 * high} && {INTENSITY} < {CAP}"
    )
    assert load(page) == "32 streams"


def one_prompt_freezes_all_and_chunks_do_not(page: Page, server: Server) -> None:
    play(page, "One long prompt")
    apart(server)  # from the prompts of the streams themselves
    page.get_by_role("button", name="Inject", exact=True).click()
    wait_side(page, "", "x", "side.steps > 0")
    apart(server)
    page.get_by_role("button", name="Pin as A").click()
    page.get_by_role("button", name="Unpin A").wait_for()
    page.get_by_role("button", name="Chunk at 64 and inject again").click()
    wait_side(page, "B", "x2", "side.steps >= 8")
    whole, pieces = side(page, "A", "x"), side(page, "B", "x2")
    assert (
        whole["worst"] * 1.01 >= whole["blamed"] >= 3 * pieces["blamed"] >= 3 * pieces["usual"] > 0
    )


def side(page: Page, name: str, axis: str) -> dict[str, float]:
    found: dict[str, float] = page.evaluate(SIDE, [name, axis])
    return found


def wait_side(page: Page, name: str, axis: str, met: str) -> None:
    page.wait_for_function(
        f"arg => {{ const side = ({SIDE})(arg); return {met}; }}", arg=[name, axis]
    )


def apart(server: Server) -> None:
    """Until the last injection is out of what the page shows before the next one."""
    seen = server.health()["clock_ns"]
    while server.health()["clock_ns"] < seen + 3 * NS_PER_S:
        sleep_s(0.2)


def the_race_pads_on_one_side(page: Page) -> None:
    """A small one: what the page says of it is compared with the recording elsewhere."""
    play(page, "The race")
    page.get_by_role("button", name="Set up").click()
    for label, value in (("Requests", "6"), ("Slots (max batch)", "3")):
        page.get_by_label(label).fill(value)
        page.get_by_label(label).press("Enter")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Run race").click()
    page.wait_for_function(f"{HEADLINE}.startsWith('Same 6 requests, 3 slots')")
    static, continuous = page.evaluate(RACED)
    assert static > 0
    assert continuous == 0


def an_h100_is_there(page: Page, server: Server) -> None:
    """Another engine in the same server; the run before is in the selector, and can be opened."""
    measured = server.health()["run_id"]
    play(page, "Modelled H100")
    expect(page.locator(".st-key-modelled button")).to_contain_text(
        "MODELLED · H100 SXM 80 GB · llama-3.1-8b", timeout=SLOW_MS
    )
    page.wait_for_function(f"0 < {INTENSITY} && {INTENSITY} < 1")  # of the ridge's
    page.get_by_role("combobox", name="Run", exact=True).click()
    expect(page.get_by_role("option", name="live run")).to_contain_text("modelled H100 SXM")
    expect(page.get_by_role("option", name="SmolLM2-135M-Instruct")).to_have_count(1)
    assert server.health()["run_id"] != measured
