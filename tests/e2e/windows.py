"""The window of steps as a person handles it: drag, click, follow, pause; what is shown then."""

from __future__ import annotations

from urllib.parse import parse_qs

from playwright.sync_api import Page

from telemetry.queries.live_bars import MAX_BARS

STRIP = "document.querySelector('#ss-strip')"
STEPS = f"({STRIP}?.data ?? []).slice(0, 2).flatMap(t => t.customdata).sort((a, b) => a - b)"


HELD = """() => {
  const query = new URLSearchParams(location.search);
  const steps = ["first", "last"].map((name) => Number(query.get(name)));
  const text = steps.map((step) => step.toLocaleString("en")).join(" to ");
  const counter = document.querySelector("#ss-counter")?.textContent;
  return query.has("first") && counter === `steps ${text}` && steps;
}"""


def address(page: Page) -> dict[str, str]:
    query = parse_qs(str(page.evaluate("location.search")).removeprefix("?"))
    return {name: values[0] for name, values in query.items()}


def link(page: Page) -> str:
    """As a person would copy it; the driver's own `page.url` may come later."""
    return str(page.evaluate("location.href"))


def drag(page: Page, chart: str, start: float, end: float) -> None:
    """From one share of the chart's first row to another, at half its height."""
    box = page.locator(f"#ss-{chart} .nsewdrag").first.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + start * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], y, steps=6)
    page.mouse.up()
    # Off the chart: a label of the pointer's would lie over it.
    page.mouse.move(box["x"], 5)


def wait_held(page: Page) -> tuple[int, int]:
    """Steps of the window, once the address and the counter beside the headline agree on them."""
    first, last = page.wait_for_function(HELD).json_value()
    return int(first), int(last)


def hold(page: Page, start: float = 0.6, end: float = 0.9) -> tuple[int, int]:
    drag(page, "strip", start, end)
    return wait_held(page)


def wait_drawn(page: Page, first: int, last: int) -> None:
    """The strip has a bar for each step of the window, and nothing beside them.

    Where they are many, a bar stands for several.
    """
    page.wait_for_function(
        f"([a, b, most]) => {{ const s = {STEPS};"
        f"const title = {STRIP}?.layout?.xaxis.title.text ?? '';"
        "if (!title.endsWith(`the end of step ${b.toLocaleString('en')}`)) return false;"
        "const every = s[0] === a && s.at(-1) === b && s.length === b - a + 1;"
        "return every || (b - a + 1 > most && s[0] >= a && s.at(-1) <= b && s.length > 20); }",
        arg=[first, last, MAX_BARS],
    )


def follow(page: Page) -> None:
    page.locator("#ss-window button").click()
    wait_following(page)


def wait_following(page: Page) -> None:
    page.wait_for_function(
        "document.querySelector('#ss-window')?.textContent.startsWith('following')"
    )


def steps_of_range(page: Page, start: float, end: float) -> list[int]:
    """Steps whose bars touch that part of the strip's axis, from what is drawn."""
    found: list[int] = page.evaluate(
        f"([a, b]) => {{ const d = {STRIP}; const [l, h] = d.layout.xaxis.range; const out = [];"
        "for (const t of d.data.slice(0, 2)) t.x.forEach((x, i) => {"
        "if (x + t.width[i] / 2 > l + a * (h - l) && x - t.width[i] / 2 < l + b * (h - l))"
        "out.push(t.customdata[i]); }); return out.sort((a, b) => a - b); }",
        [start, end],
    )
    return found


def paused(page: Page) -> None:
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Resume").wait_for()
    page.wait_for_function(
        "document.querySelector('#ss-headline')?.textContent.startsWith('Paused')"
    )


def resume(page: Page) -> None:
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Pause").wait_for()


# Where a click is for a step: a stretch of a pause has none, and moves through the strip.
AT, SPARE_S = 0.75, 3
BARS_THERE = f"""() => {{
  const d = {STRIP}, [low, high] = d.layout.xaxis.range, at = low + {AT} * (high - low);
  const bars = d.data.slice(0, 2).flatMap((t) => t.x.map((x, i) => [x, t.width[i]]))
    .filter(([x]) => Math.abs(x - at) < {SPARE_S}).sort(([a], [b]) => a - b);
  return bars.length > 1 && bars.every(([x, width], i) =>
    !i || x - width / 2 - (bars[i - 1][0] + bars[i - 1][1] / 2) < 0.2);
}}"""


def click_bar(page: Page) -> int:
    """Near the top of the row, above a bar, which may be short."""
    page.wait_for_function(BARS_THERE)
    box = page.locator("#ss-strip .nsewdrag").first.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + AT * box["width"], box["y"] + 4)
    page.wait_for_function("location.search.includes('step=')")
    return int(address(page)["step"])
