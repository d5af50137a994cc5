"""The browser's script alone, fed by hand: what goes is hidden, an unseen tab lets go."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route

pytestmark = pytest.mark.browser

STATIC = Path(__file__).resolve().parents[2] / "app" / "static"
SCRIPTS = ("/live.js", "/chart.js")
ORIGIN = "http://stepscope.test"
# Streams that the test speaks through; the last one opened is the one in use.
SOURCES = """
window.sources = [];
window.EventSource = class {
  static CLOSED = 2;
  constructor(url) { this.url = url; this.readyState = 1; window.sources.push(this); }
  close() { this.readyState = 2; }
};
// What is drawn, and what the headline says in that moment.
window.drawn = [];
window.Plotly = {
  purge() {},
  async react(div) {
    div.on = () => {};
    window.drawn.push([div.id.slice(3), document.querySelector("#ss-headline").textContent]);
  },
};
window.see = (hidden) => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
};
"""
WORDS = ("headline", "counter", "tiles", "blank")
PANELS = [
    *({"id": name, "kind": "html"} for name in WORDS),
    {"id": "anatomy", "kind": "figure"},
    {"id": "strip", "kind": "figure", "leads": True},
]
PAGE = f"""<div id="host"><div class="ss-root"></div></div>
<script type="module">
import {{ mount }} from "/live.js";
const data = {{ view: "live", params: {{ run: "live" }}, panels: {json.dumps(PANELS)} }};
const parentElement = document.querySelector("#host");
window.again = (params, only) => {{
  const panels = data.panels.filter((panel) => !only || only.includes(panel.id));
  mount({{ parentElement, data: {{ ...data, params, panels }} }});
}};
mount({{ parentElement, data }});
window.mounted = true;
</script>"""


def serve(route: Route) -> None:
    path = route.request.url.removeprefix(ORIGIN)
    if path == "/":
        route.fulfill(content_type="text/html", body=PAGE)
    elif path in SCRIPTS:
        route.fulfill(content_type="text/javascript", body=(STATIC / path[1:]).read_text())
    else:
        route.fulfill(content_type="text/javascript", body="")


@pytest.fixture
def script(browser: Browser) -> Iterator[Page]:
    page = browser.new_page()
    page.add_init_script(SOURCES)
    page.route("**/*", serve)
    page.goto(f"{ORIGIN}/")
    page.wait_for_function("window.mounted")
    yield page
    page.close()


def say(
    page: Page,
    seq: int,
    html: dict[str, str],
    gone: tuple[str, ...] = (),
    charts: tuple[str, ...] = (),
) -> None:
    figures = {name: {"data": [], "layout": {"uirevision": "1"}} for name in charts}
    update: dict[str, Any] = {"seq": seq, "gone": list(gone), "figures": figures, "html": html}
    page.evaluate("text => window.sources.at(-1).onmessage({data: text})", json.dumps(update))


def shown(page: Page) -> set[str]:
    return {n for n in WORDS if not page.evaluate(f"document.querySelector('#ss-{n}').hidden")}


def open_streams(page: Page) -> int:
    return int(page.evaluate("window.sources.filter(s => s.readyState !== 2).length"))


def test_a_fragment_that_is_gone_is_hidden(script: Page) -> None:
    say(script, 1, {"headline": "<b>a</b>", "counter": "step 7", "tiles": "<i>85 tokens/s</i>"})
    assert shown(script) == {"headline", "counter", "tiles"}
    stopped = {"headline": "<b>The engine has stopped.</b>", "blank": "<b>why</b>"}
    say(script, 2, stopped, ("counter", "tiles"))
    assert shown(script) == {"headline", "blank"}
    assert "tokens/s" not in script.inner_text("#host")
    say(script, 3, {"counter": "step 8"}, ("blank",))
    assert shown(script) == {"headline", "counter"}


def test_a_place_is_kept_until_the_first_message(script: Page) -> None:
    assert shown(script) == {"headline", "counter", "tiles"}


def test_other_parameters_open_another_stream_and_keep_what_is_shown(script: Page) -> None:
    """A click on a control mounts again: the same places, another question."""
    say(script, 1, {"headline": "<b>a</b>"})
    script.evaluate("void window.again({run: 'live', span: '20'})")
    assert script.inner_text("#ss-headline") == "a"
    assert script.evaluate("window.sources.at(-1).url").find("run=live&span=20") > 0
    say(script, 1, {"headline": "<b>b</b>"})
    assert script.inner_text("#ss-headline") == "b"


def drawn(page: Page, charts: int) -> list[list[str]]:
    """Each chart with what the headline said beside it, once so many were drawn."""
    page.wait_for_function(f"window.drawn.length >= {charts}")
    found: list[list[str]] = page.evaluate("window.drawn")
    return found


def test_words_come_with_the_chart_whose_numbers_they_share(script: Page) -> None:
    """What leads is on the screen first, and no frame has a headline without its anatomy."""
    say(script, 1, {"headline": "a"}, charts=("anatomy", "strip"))
    assert drawn(script, 2)[1] == ["anatomy", "a"]
    say(script, 2, {"headline": "b"}, charts=("anatomy", "strip"))
    assert drawn(script, 4)[2:] == [["strip", "a"], ["anatomy", "b"]]
    say(script, 3, {"headline": "c"}, charts=("strip",))
    assert drawn(script, 5)[4:] == [["strip", "c"]]
    say(script, 4, {"headline": "d"})
    script.wait_for_function("document.querySelector('#ss-headline').textContent === 'd'")


def test_other_places_for_the_same_stream_are_filled_at_once(script: Page) -> None:
    """And what was to be said in places that are gone is dropped."""
    errors: list[str] = []
    script.on("pageerror", lambda error: errors.append(str(error)))
    say(script, 1, {"headline": "a", "tiles": "a"}, charts=("anatomy", "strip"))
    drawn(script, 2)
    update = {"seq": 2, "gone": [], "figures": {}, "html": {"tiles": "b", "headline": "b"}}
    script.evaluate(
        "text => { sources.at(-1).onmessage({data: text});"
        " again({run: 'live'}, ['headline', 'strip']); }",
        json.dumps(update),
    )
    assert drawn(script, 3)[2:] == [["strip", "b"]]
    assert open_streams(script) == 1
    assert script.locator("#ss-tiles").count() == 0
    assert errors == []


def test_a_hidden_tab_holds_no_connection(script: Page) -> None:
    say(script, 1, {"headline": "<b>a</b>"})
    assert open_streams(script) == 1
    script.evaluate("see(true)")
    assert open_streams(script) == 0
    script.evaluate("see(false)")
    assert open_streams(script) == 1
    say(script, 1, {"headline": "<b>b</b>"})
    assert script.inner_text("#ss-headline") == "b"


def test_a_tab_opened_in_the_background_connects_when_seen(script: Page) -> None:
    script.add_init_script(
        "Object.defineProperty(document, 'hidden', {value: true, configurable: true})"
    )
    script.reload()
    script.wait_for_function("window.mounted")
    assert open_streams(script) == 0
    script.evaluate("see(false)")
    assert open_streams(script) == 1
