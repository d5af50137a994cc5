"""From the end of the newest step to the frame in which it is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from playwright.sync_api import Browser, Page

from telemetry.clock import NS_PER_S
from telemetry.database import open_reader
from tests.bench.live_demo import CHARTS, Clock, clock_of, demo, opened, rest
from tests.e2e.conftest import Server

MOST_P95_S = 0.25
PAGES = ("live", "roofline")

# Messages are told apart by the arrays in them, which plotly keeps as they came: what was drawn is
# what was received then, whatever came meanwhile. A message of a channel, posted in the callback of
# a frame, is taken once that frame has been painted.
SCRIPT = """
(() => {
  const parse = JSON.parse, messages = new WeakMap();
  JSON.parse = function (text, reviver) {
    const made = parse.call(JSON, text, reviver);
    const step = made?.html?.counter && /step ([\\d,]+)/.exec(made.html.counter);
    if (step && made.figures) {
      const message = { step: +step[1].replaceAll(",", ""), received: performance.now() };
      for (const figure of Object.values(made.figures)) messages.set(figure.data, message);
    }
    return made;
  };
  const drawn = (window.__drawn = []);
  window.__watch = (id) => document.querySelector(id).on("plotly_afterplot", function () {
    const message = messages.get(document.querySelector(id).data);
    if (!message || message.plotted) return;
    message.plotted = performance.now();
    requestAnimationFrame(() => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => drawn.push({ ...message, painted: performance.now() });
      port2.postMessage(0);
    });
  });
})();
"""


@dataclass(frozen=True, slots=True)
class Drawn:
    """One update of a page: the newest step it shows, and when it came, was drawn and seen, ns."""

    page: str
    step: int
    received_ns: int
    plotted_ns: int
    painted_ns: int


def measure(browser: Browser, duration_s: float) -> dict[str, Any]:
    """Both pages for so long, one after the other, beside a load of four streams."""
    with demo(()) as server:
        watched = {name: _watch(browser, server, name, duration_s) for name in PAGES}
        ends_ns = _ends_ns(server)
    return {
        name: _told(drawn, ends_ns) | {"clock_error_s": clock.error_ns / NS_PER_S}
        for name, (drawn, clock) in watched.items()
    }


def _watch(
    browser: Browser, server: Server, name: str, duration_s: float
) -> tuple[list[Drawn], Clock]:
    page = opened(browser, server, name, SCRIPT)
    rest(page, 3)
    clock = clock_of(page)
    page.evaluate(f"window.__watch('#ss-{CHARTS[name]}')")
    rest(page, duration_s)
    seen = _read(page, name, clock)
    page.context.close()
    return seen, clock


def _read(page: Page, name: str, clock: Clock) -> list[Drawn]:
    return [
        Drawn(name, int(d["step"]), *(clock.ns(d[at]) for at in ("received", "plotted", "painted")))
        for d in page.evaluate("window.__drawn")
    ]


def _ends_ns(server: Server) -> dict[int, int]:
    """When each step ended, from the recording, which only an ended server lets go of."""
    server.stop()
    with open_reader(server.db) as reader:
        sql = "SELECT step, t_start_ns + CAST(round(t_step_s * 1e9) AS BIGINT) FROM steps"
        return {int(step): int(end_ns) for step, end_ns in reader.rows(sql)}


def _told(drawn: list[Drawn], ends_ns: dict[int, int]) -> dict[str, Any]:
    """Seconds: to the pixel, of it to the browser, to draw, to the frame; between updates.

    oldest: the newest step that was shown, at the instant before the next one was.
    """
    to_pixel = [(d.painted_ns - ends_ns[d.step]) / NS_PER_S for d in drawn]
    to_browser = [(d.received_ns - ends_ns[d.step]) / NS_PER_S for d in drawn]
    pairs = list(pairwise(drawn))
    return {
        "updates": len(drawn),
        "steps": drawn[-1].step - drawn[0].step,
        "to_pixel_s": spread(to_pixel),
        "to_browser_s": spread(to_browser),
        "to_draw_s": spread([(d.plotted_ns - d.received_ns) / NS_PER_S for d in drawn]),
        "to_frame_s": spread([(d.painted_ns - d.plotted_ns) / NS_PER_S for d in drawn]),
        "between_s": spread([(b.painted_ns - a.painted_ns) / NS_PER_S for a, b in pairs]),
        "oldest_s": spread([(b.painted_ns - ends_ns[a.step]) / NS_PER_S for a, b in pairs]),
    }


def spread(values: list[float]) -> dict[str, float]:
    """P50, P95, and the least and the greatest."""
    p50, p95 = (float(np.percentile(values, p)) for p in (50, 95))
    return {"p50": p50, "p95": p95, "least": min(values), "greatest": max(values)}
