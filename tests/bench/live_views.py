"""What the live views cost and how quick they are, in a real browser on a real engine.

    .venv/bin/python -m tests.bench.live_views [SECTION ...] [--out FILE]

pixel: from the end of the newest step to the frame that shows it, on Live and Roofline. switch:
from a click in the navigation to the first chart of the other page. flip: from a click on the
scheduler's control to the headline that names the new one. survive: zoom, hover and scroll
over a hundred updates. viewers: the engine's rate with and without eight event streams, in turn,
and what each of them waits between two messages. memory: the tab's heap and process over minutes.

The browser's clock is tied to the machine's by round trips; how far off it may be is printed.
Prints a table, and JSON with --out; exit code 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from app.bench.machine import Watch
from engine.calibration import device_name
from engine.threads import available_cores
from tests.bench import live_flips, live_memory, live_pages, live_pixel, live_viewers
from tests.bench.live_demo import CHARTS, chromium

Row = tuple[str, str, str, bool]
"""What was measured, how it came out, the target, and whether it was met."""


def main() -> int:
    asked = _arguments()
    watch = Watch()
    found: dict[str, Any] = {"machine": _machine()}
    rows: list[Row] = []
    for name in asked.sections or list(SECTIONS):
        measure, told = SECTIONS[name]
        found[name], foreign = watch.during(lambda measure=measure: measure(asked))
        found[name]["foreign"] = foreign
        made = list(told(found[name]))
        rows += made
        print("\n".join(_line(row) for row in made), flush=True)
    print(f"\n{found['machine']['device']}, {found['machine']['cores']} cores; ", end="")
    print(f"others used {watch.worst:.0%} of them at most")
    if asked.out is not None:
        asked.out.write_text(json.dumps(found, indent=1))
    return int(not all(met for *_, met in rows))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sections", nargs="*", metavar="section", help=", ".join(SECTIONS))
    parser.add_argument("--seconds", type=float, default=40.0, help="of pixel, on each page")
    parser.add_argument("--rounds", type=int, default=5, help="of viewers")
    parser.add_argument("--each", type=float, default=8.0, help="seconds of a side of a round")
    parser.add_argument("--viewers", type=int, default=8)
    parser.add_argument(
        "--views", nargs="+", default=["live"], choices=list(CHARTS), help="that viewers watch"
    )
    parser.add_argument("--switches", type=int, default=1, help="rounds over all pairs of pages")
    parser.add_argument("--flips", type=int, default=30, help="of the scheduler")
    parser.add_argument("--minutes", type=float, default=10.0, help="of memory")
    parser.add_argument("--page", default="live", choices=list(CHARTS), help="of memory")
    parser.add_argument("--out", type=Path, help="save everything as JSON here")
    asked = parser.parse_args()
    unknown = [name for name in asked.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"no section {', '.join(unknown)}: there are {', '.join(SECTIONS)}")
    return asked


def _machine() -> dict[str, Any]:
    return {
        "device": device_name(),
        "cores": available_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def _line(row: Row) -> str:
    what, value, target, met = row
    verdict = "" if not target else "met" if met else "MISSED"
    return f"{what:34s} {value:44s} {target:>18s}  {verdict}".rstrip()


def _ms(values: dict[str, float]) -> str:
    ends = f"{1e3 * values['least']:.0f} … {1e3 * values['greatest']:.0f} ms"
    return f"P50 {1e3 * values['p50']:.0f}, P95 {1e3 * values['p95']:.0f} of {ends}"


_PARTS = {
    "to_browser_s": "of it to the browser",
    "to_draw_s": "of it drawing",
    "to_frame_s": "of it to the next frame",
    "between_s": "between updates",
    "oldest_s": "oldest picture",
}


def _pixel(asked: argparse.Namespace) -> dict[str, Any]:
    with chromium() as browser:
        return live_pixel.measure(browser, asked.seconds)


def _tell_pixel(found: dict[str, Any]) -> Iterator[Row]:
    most = live_pixel.MOST_P95_S
    for page in live_pixel.PAGES:
        told = found[page]
        error = f"± {1e3 * told['clock_error_s']:.1f} ms"
        met = told["to_pixel_s"]["p95"] + told["clock_error_s"] < most
        yield f"{page}: step to pixel ({error})", _ms(told["to_pixel_s"]), "P95 < 250 ms", met
        for name, words in _PARTS.items():
            yield f"{page}: {words}", _ms(told[name]), "", True


def _switch(asked: argparse.Namespace) -> dict[str, Any]:
    with chromium() as browser:
        return live_pages.switches(browser, asked.switches)


def _tell_switch(found: dict[str, Any]) -> Iterator[Row]:
    most = live_pages.MOST_SWITCH_S
    yield "switch to a page, first time", _ms(found["first"]), "", True
    for page, told in found["to"].items():
        yield f"switch to {page}", _ms(told), "< 500 ms", told["greatest"] < most


def _flip(asked: argparse.Namespace) -> dict[str, Any]:
    with chromium() as browser:
        return live_flips.flips(browser, asked.flips)


def _tell_flip(found: dict[str, Any]) -> Iterator[Row]:
    told = found["shown_s"]
    yield "flip of the scheduler shows", _ms(told), "P95 < 1 s", told["p95"] < live_flips.MOST_P95_S


def _survive(asked: argparse.Namespace) -> dict[str, Any]:
    with chromium() as browser:
        return live_pages.survival(browser)


def _tell_survive(found: dict[str, Any]) -> Iterator[Row]:
    for what in ("zoom", "hover"):
        told = found[what]
        for name in (f"{what}_kept", "scroll_kept"):
            words = f"{'kept' if told[name] else 'lost'} over {told['updates']} updates"
            yield f"{what}: {name.split('_')[0]}", words, "100 updates", bool(told[name])


def _viewers(asked: argparse.Namespace) -> dict[str, Any]:
    return live_viewers.measure(asked.views, asked.viewers, asked.rounds, asked.each)


def _tell_viewers(found: dict[str, Any]) -> Iterator[Row]:
    each = found["slower_of_rounds"]
    value = f"{found['slower']:+.1%} of {min(each):+.1%} … {max(each):+.1%}"
    what = f"{found['viewers']} viewers: slower engine"
    yield what, value, "< 3%", found["slower"] < live_viewers.MOST_SLOWER
    between = found["between_s"]
    met = between["p95"] < live_viewers.MOST_BETWEEN_S
    yield f"{found['viewers']} viewers: between messages", _ms(between), "P95 < 300 ms", met


def _memory(asked: argparse.Namespace) -> dict[str, Any]:
    with chromium() as browser:
        return live_memory.measure(browser, asked.page, asked.minutes)


def _tell_memory(found: dict[str, Any]) -> Iterator[Row]:
    for name, target in (("heap_bytes", "grew < 1 MiB"), ("rss_bytes", "")):
        told = {k: v / live_memory.MIB for k, v in found[name].items()}
        trend = f"trend {told['trend']:+.2f} ± {told['error']:.2f} MiB"
        value = f"{told['first']:.1f} to {told['last']:.1f} MiB, {trend}"
        most = max(live_memory.MOST_HEAP_BYTES, 2 * found[name]["error"])
        met = found[name]["trend"] < most
        yield f"{found['page']}: {name.split('_')[0]} of the tab", value, target, met


SECTIONS: dict[str, tuple[Callable[..., dict[str, Any]], Callable[..., Iterator[Row]]]] = {
    "pixel": (_pixel, _tell_pixel),
    "switch": (_switch, _tell_switch),
    "flip": (_flip, _tell_flip),
    "survive": (_survive, _tell_survive),
    "viewers": (_viewers, _tell_viewers),
    "memory": (_memory, _tell_memory),
}

if __name__ == "__main__":
    sys.exit(main())
