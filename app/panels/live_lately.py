"""What the tiles and the request stream of the Live page share: a stretch's tokens and requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from app.panels import live_stream
from app.panels.live_served import Served, served
from app.panels.live_stream import Stream
from app.panels.modelled import is_modelled
from app.panels.view import Moment
from telemetry.queries import live, live_requests, live_seconds, live_tokens
from telemetry.queries.answers import running_clock
from telemetry.reader import Reader
from telemetry.views import FOREVER_NS


@dataclass(frozen=True, slots=True)
class Lately:
    """seconds: rows of `live_seconds.per_second`. tokens: how many came, None where the source
    does not report them; ran_s: seconds of the stretch without its pauses. served and stream: None
    where the source does not tell of single requests.
    """

    seconds: pd.DataFrame
    tokens: int | None
    ran_s: float
    paused: bool
    served: Served | None
    stream: Stream | None


@dataclass(frozen=True, slots=True)
class Stretch:
    """Instants of the run's clock, ns, and how long a bar of the series stands for.

    first_since_ns: from when on first tokens count for the worst TTFT. listed_since_ns: requests
    that ended after it are in the stream, also where the stretch is later. until_ns: what came
    later is not told.
    """

    start_ns: int
    end_ns: int
    width_s: float
    first_since_ns: int
    listed_since_ns: int
    until_ns: int = FOREVER_NS

    @property
    def span_s(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9


def lately(reader: Reader, run: dict[str, Any], of: Stretch, moment: Moment) -> Lately:
    """Each table is read once."""
    run_id = str(run["run_id"])
    paused = live_tokens.pauses(reader, run_id)
    found = live_tokens.tokens(reader, run_id, of.start_ns, of.end_ns, paused)
    seconds = live_seconds.per_second(reader, run_id, of.end_ns, of.span_s, found, of.width_s)
    tokens: int | None = len(found.t_ns)
    if not tokens and not live.reports_tokens(reader, run_id):
        tokens = None
    began = max(of.start_ns, int(run["started_ns"]))
    clock = running_clock(np.array([began, of.end_ns]), paused)
    ran_s = float(clock[1] - clock[0]) / 1e9
    was_paused = ran_s < (of.end_ns - began) / 1e9
    served_, stream = _requests(reader, run, of, paused, ran_s, moment)
    return Lately(seconds, tokens, ran_s, was_paused, served_, stream)


def _requests(
    reader: Reader,
    run: dict[str, Any],
    of: Stretch,
    paused: live_tokens.Ints,
    ran_s: float,
    moment: Moment,
) -> tuple[Served | None, Stream | None]:
    run_id, since_ns = str(run["run_id"]), of.listed_since_ns
    rows = live_requests.requests(reader, run_id, since_ns, of.end_ns, paused, of.until_ns)
    if not len(rows) and not live_requests.reported(reader, run_id):
        return None, None
    met = served(rows, run, of.start_ns, ran_s, of.first_since_ns)
    chosen = live_stream.chosen(rows)
    ids = live_stream.ids_of(chosen)
    tails = live_requests.tails(reader, run_id, since_ns, ids, of.until_ns)
    texts, counts = live_stream.texts(tails, moment.pieces), live_stream.counts(rows)
    return met, Stream(chosen, tails, texts, met, counts, is_modelled(run))
