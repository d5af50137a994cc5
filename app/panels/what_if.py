"""The What-if page: one modelled step from its address alone, without engine and run."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from app.figures.batch_cost import batch_cost
from app.figures.budget import budget
from app.figures.data import Figure
from app.figures.overlap import overlap
from app.figures.phases import phases
from app.figures.prompt_cost import prompt_cost
from app.panels import markup, what_if_parts, what_if_table, what_if_text
from app.panels.view import Params, View
from app.panels.what_if_controls import MOST_BATCH
from app.panels.what_if_state import State, command, parse, question
from app.theme import Theme
from app.units import count, duration, three
from engine.errors import UserError
from engine.physics.whatif import WhatIf, answer

Answer = dict[str, Any]


def panels(params: Params, look: Theme, /) -> View:
    """params: the options of `stepscope whatif`, devices and dtypes to compare, and the part.

    part: "table" for the comparison, which takes longest and stands last, else all but it.
    What cannot be is told in one line, with nothing drawn.
    """
    try:
        state = parse(params)
        asked = question(state)
        if params.get("part") == "table":
            return View(html={"table": what_if_table.table(what_if_table.rows(state), state)})
        found = answer(asked)
        html = _html(state, found)
    except UserError as error:
        return _refused(str(error))
    return View(_figures(asked, found, look), html)


def _refused(message: str) -> View:
    """One line, its advice first where there is some; the controls stay, to mend it."""
    rest, hint, advice = message.partition("; did you mean ")
    told = f"Did you mean {advice} ({rest})" if hint else message
    return View(
        html={
            "headline": markup.headline("This cannot be answered.", told),
            "blank": markup.empty("Not possible", message),
            "badge": "MODELLED <u>assumptions</u>",
            "assumptions": "",
            "scale": scale(None),
        }
    )


def _figures(asked: WhatIf, a: Answer, look: Theme) -> dict[str, Figure]:
    parts = what_if_parts
    unknown = "+ KV cache, unknown" if a["t_kv_s"] is None else ""
    curves = parts.batch_curves(asked)
    under = phases(parts.points(asked), curves, parts.peaks(asked), parts.decode(asked), look)
    return {
        "overlap": overlap(parts.pieces(a), parts.captions(a, asked), look, unknown),
        "budget": budget(parts.memory(a), look),
        "curves": _curves(asked, a, look),
        "phases": under,
    }


def _curves(asked: WhatIf, a: Answer, look: Theme) -> Figure:
    """Over the batch for a decode, over the prompt's length for a prefill."""
    parts = what_if_parts
    if asked.phase == "prefill":
        now = (float(asked.prompt_tokens or 1), float(a["t_step_s"]))
        return prompt_cost(parts.prompt_curves(asked), now, look, asked.batch)
    now = (float(asked.batch), float(a["t_step_s"]))
    return batch_cost(parts.batch_curves(asked), parts.crossing(a), now, look, asked.context)


def _html(state: State, a: Answer) -> dict[str, str]:
    text = what_if_text
    return {
        "headline": text.headline(a),
        "badge": text.badge(a),
        "scale": scale(a["b_star_with_kv"]),
        "slo": text.slo(a),
        "fit": text.fit(a),
        "facts": text.facts(a),
        "assumptions": text.assumptions(a, command(state)),
        "footnotes": text.notes(_notes(a)),
    }


def scale(star: float | None) -> str:
    """Ticks below the slider, and where computing catches up; None where it never does."""
    marks = [(2**i, f"{2**i:,}") for i in range(int(math.log2(MOST_BATCH)) + 1)]
    ticks = "".join(f'<i style="left:{_share(n):.2f}%">{text}</i>' for n, text in marks)
    if star is None or star > MOST_BATCH:
        return ticks
    return f'{ticks}<b style="left:{_share(star):.2f}%" title="B* {three(star)}"></b>'


def _share(batch: float) -> float:
    return 100 * math.log2(max(batch, 1.0)) / math.log2(MOST_BATCH)


def _notes(a: Answer) -> list[str]:
    """What a reader of the articles would stumble over, for this state first."""
    first = [what_if_text.crossover(a)]
    if a["b_star"] > 4 * MOST_BATCH:
        first.append(
            f"A B* of {count(a['b_star'])} is a direction, not a size: it only says that "
            f"{three(a['active_params'] / a['total_params'] * 100)}% of the weights compute."
        )
    return [*first, _article_note()]


@lru_cache(1)
def _article_note() -> str:
    case = State(phase="prefill", prompt_tokens=4096)
    prompt = answer(question(case))["prefill"]
    return (
        "The article's 300 ms for a 4K prefill of a 70B model is below one H100's datasheet floor: "
        f"its linear layers alone take {duration(prompt['t_linear_s'])}, with attention "
        f"{duration(prompt['t_compute_s'])}. All rates are dense ones of the datasheets."
    )
