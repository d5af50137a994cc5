"""What can be chosen in a chart, as `live.js` reads it from the layout's `meta`."""

from __future__ import annotations

from typing import Any, Literal

from app.figures.data import Figure


def by_time(figure: Figure, zero_ns: int, axis: str = "xaxis") -> Figure:
    """A drag along this axis of seconds chooses a window of steps; zero_ns: its 0 (monotonic).

    As text, since nanoseconds since boot do not fit a browser's numbers.
    """
    _meta(figure).setdefault("selects", {})[axis] = str(zero_ns)
    return figure


def by_step(figure: Figure, axis: str = "xaxis") -> Figure:
    """A drag along this axis of step numbers chooses a window of steps."""
    _meta(figure).setdefault("selects", {})[axis] = "step"
    return figure


def clicks(figure: Figure, first: int, last: int, by: Literal["x", "point"] = "point") -> Figure:
    """A click chooses the step that stands in `customdata`, and holds steps first to last.

    by "x": of the bar of the first row that is nearest along x; "point": of the point that was hit.
    """
    _meta(figure)["steps"] = {"by": by, "first": first, "last": last}
    return figure


def _meta(figure: Figure) -> dict[str, Any]:
    meta: dict[str, Any] = figure["layout"].setdefault("meta", {})
    return meta
