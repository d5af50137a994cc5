"""Switching pages, and what a person did in a chart, over a hundred updates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from playwright.sync_api import Browser, Page

from tests.bench.live_demo import CHARTS, demo, opened, rest, updates
from tests.bench.live_pixel import spread
from tests.e2e.conftest import Server

MOST_SWITCH_S = 0.5
LEAST_UPDATES = 100
NAMES = {
    "live": "Live",
    "roofline": "Roofline",
    "interference": "Interference",
    "scheduling": "Scheduling",
    "kv-cache": "KV cache",
    "requests": "Requests",
}

# From the instant of the click to the first frame painted with the other page's first chart.
CLICK = """
(id) => {
  window.__switched = null;
  document.addEventListener("click", (event) => {
    const began = event.timeStamp;
    const look = () => {
      const there = document.querySelector(`${id} .main-svg .plot path, ${id} .main-svg .bglayer`);
      if (!there) return requestAnimationFrame(look);
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => { window.__switched = performance.now() - began; };
      port2.postMessage(0);
    };
    requestAnimationFrame(look);
  }, { capture: true, once: true });
}
"""


def switches(browser: Browser, rounds: int) -> dict[str, Any]:
    """From each page to each other, by a click in the navigation; and to each for the first time.

    The first time the server has yet to import what the page needs.
    """
    with demo(()) as server:
        page = opened(browser, server, "live")
        first = {name: _switch(page, name) for name in list(CHARTS)[1:]}
        took = [made for _ in range(rounds) for made in _tour(page)]
        page.context.close()
    by_page = {b: spread([s for _, to, s in took if to == b]) for b in CHARTS}
    return {
        "first": spread(list(first.values())),
        "first_to": first,
        "all": spread([s for _, _, s in took]),
        "switches": len(took),
        "to": by_page,
    }


def _tour(page: Page) -> Iterator[tuple[str, str, float]]:
    """Every page from every other: where it began, where it went, and the seconds that took."""
    names = list(CHARTS)
    for i, a in enumerate(names):
        _switch(page, a)
        for b in names[i + 1 :]:
            yield a, b, _switch(page, b)
            yield b, a, _switch(page, a)


def _switch(page: Page, name: str) -> float:
    """Seconds; the page then stands for a moment, as it does when somebody looks at it."""
    page.evaluate(CLICK, f"#ss-{CHARTS[name]}")
    page.get_by_role("link", name=NAMES[name], exact=True).click()
    page.wait_for_function("window.__switched !== null")
    took_s = float(page.evaluate("window.__switched")) / 1e3
    rest(page, 0.7)
    return took_s


RANGES = """() => {
  const { xaxis, yaxis } = document.querySelector('#ss-roofline').layout;
  return [...xaxis.range, ...yaxis.range];
}"""
SCROLLED = """(() => {
  let box = document.querySelector('.ss-root');
  const scrolls = (e) => e.scrollHeight > e.clientHeight + 4
    && /auto|scroll/.test(getComputedStyle(e).overflowY);
  while (box && !scrolls(box)) box = box.parentElement;
  return (box ?? document.scrollingElement).scrollTop;
})()"""
LABELS = "document.querySelectorAll('#ss-gantt .hoverlayer .hovertext').length"
# A lane in which somebody decodes most of the time, in the middle of the window.
PLACE = """() => {
  const div = document.querySelector('#ss-gantt'), box = div.getBoundingClientRect();
  const { xaxis, yaxis } = div._fullLayout;
  return [box.left + xaxis._offset + xaxis._length / 2, box.top + yaxis._offset + yaxis.d2p(1)];
}"""


def survival(browser: Browser, asked: int = LEAST_UPDATES) -> dict[str, Any]:
    """Whether a zoom, a hover label and a scrolled page outlast so many updates."""
    with demo(()) as server:
        return {"zoom": _zoom(browser, server, asked), "hover": _hover(browser, server, asked)}


def _zoom(browser: Browser, server: Server, asked: int) -> dict[str, Any]:
    """A part of the roofline's plane that was dragged over, on a page that was scrolled."""
    page = opened(browser, server, "roofline")
    whole = page.evaluate(RANGES)
    box = page.locator("#ss-roofline .nsewdrag").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 0.2 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.7 * box["height"], steps=8)
    page.mouse.up()
    rest(page, 0.5)
    zoomed, scrolled = page.evaluate(RANGES), _scroll(page)
    made = _updated(page, asked)
    kept = page.evaluate(RANGES)
    same = all(abs(a - b) < 1e-9 for a, b in zip(kept, zoomed, strict=True))
    made |= {"zoom_kept": zoomed != whole and same, "scroll_kept": _stands(page, scrolled)}
    page.context.close()
    return made


def _hover(browser: Browser, server: Server, asked: int) -> dict[str, Any]:
    """The label under a pointer that rests in the Gantt, looked at after every tenth update."""
    page = opened(browser, server, "scheduling")
    scrolled = _scroll(page)
    x, y = page.evaluate(PLACE)
    page.mouse.move(x - 5, y)
    page.mouse.move(x, y, steps=4)
    page.wait_for_function(f"{LABELS} > 0")
    looks, made = [], {"updates": 0}
    while made["updates"] < asked:
        made["updates"] += _updated(page, 10)["updates"]
        rest(page, 0.15)  # plotly looks at a pointer at most every 50 ms
        looks.append(bool(page.evaluate(LABELS)))
    told = {"hover_kept": looks[-1], "hover_seen": sum(looks) / len(looks)}
    made |= told | {"scroll_kept": _stands(page, scrolled)}
    page.context.close()
    return made


def _scroll(page: Page) -> float:
    """A window too low for the page, and a turn of the wheel; how far it went, px."""
    page.set_viewport_size({"width": 1280, "height": 520})
    page.mouse.move(640, 300)
    page.mouse.wheel(0, 90)
    page.wait_for_function(f"{SCROLLED} > 0")
    rest(page, 0.5)
    return float(page.evaluate(SCROLLED))


def _stands(page: Page, scrolled: float) -> bool:
    return float(page.evaluate(SCROLLED)) == scrolled


def _updated(page: Page, asked: int) -> dict[str, Any]:
    before = updates(page)
    page.wait_for_function(f"window.__stepscope.updates >= {before + asked}", timeout=asked * 3e3)
    return {"updates": updates(page) - before}
