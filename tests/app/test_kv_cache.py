"""KV cache: maps, areas and numbers against the block manager's own books and SQL by hand."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

from app.figures import kv_map
from app.figures.kv_budget import Memory, kv_budget
from app.figures.kv_map import CACHED, FREE, ROOM, USED, Map, by_address, by_request
from app.figures.kv_series import kv_series
from app.panels import kv_cache as page
from app.panels.kv_facts import facts
from app.theme import DARK, LIGHT
from telemetry.queries import kv_cache as queries
from telemetry.reader import Reader
from telemetry.store import Store
from tests.app.cached import PREFIX, CachedSimulation, cached_run
from tests.app.synthetic import BLOCK, RUN_ID, Simulation

STEPS = (0, 3, 17, 40, 90)


@pytest.fixture(scope="module")
def run() -> CachedSimulation:
    return cached_run()


@pytest.fixture(scope="module")
def cached(run: CachedSimulation) -> Iterator[Reader]:
    store = Store(None)
    run.write(store)
    yield store.reader()
    store.close()


def at(reader: Reader, step: int, **more: Any) -> Map:
    blocks, holders = queries.blocks(reader, RUN_ID, step), queries.holders(reader, RUN_ID, step)
    return Map(blocks, holders, BLOCK, queries.extent(reader, RUN_ID), **more)


def trace(figure: dict[str, Any], name: str) -> dict[str, Any]:
    return next(t for t in figure["data"] if t["name"] == name)


def cells(figure: dict[str, Any]) -> Counter[int | None]:
    return Counter(code for row in trace(figure, "blocks")["z"] for code in row)


@pytest.mark.parametrize("step", STEPS)
def test_the_changes_give_the_books_of_any_step(
    cached: Reader, run: CachedSimulation, step: int
) -> None:
    rows = queries.blocks(cached, RUN_ID, step)
    books = run.books[step]
    assert dict(zip(rows["block"], rows["state"], strict=True)) == {
        block: state for block, (state, _) in books.items()
    }
    for row in rows.itertuples():
        holders = books[int(str(row.block))][1]
        assert row.refs == len(holders)
        assert (pd.isna(row.request_id) and not holders) or row.request_id in holders


@pytest.mark.parametrize("step", STEPS)
def test_by_request_draws_each_used_block_once_in_its_place(
    cached: Reader, run: CachedSimulation, step: int
) -> None:
    state = at(cached, step)
    drawn = trace(by_request(state, LIGHT), "blocks")
    used = {b: holders for b, (kind, holders) in run.books[step].items() if kind == "used"}
    assert sum(code is not None for row in drawn["z"] for code in row) == len(used)
    held = state.blocks.dropna(subset="request_id")
    for block, owner, place in held[["block", "request_id", "position"]].itertuples(index=False):
        row = state.rows.index(int(owner))
        assert drawn["customdata"][row][place] == owner
        context = int(state.holders.set_index("request_id")["context_tokens"][owner])
        full = (place + 1) * BLOCK <= context
        assert drawn["z"][row][place] == (USED if full else ROOM)
        assert block in used


def test_a_shared_prefix_is_drawn_once_with_its_count(cached: Reader) -> None:
    figure = by_request(at(cached, 3), LIGHT)
    assert [a["text"] for a in figure["layout"]["annotations"]] == ["<b>× 4</b>"]
    box = trace(figure, "shared")
    assert (min(x for x in box["x"] if x is not None), box["x"][1]) == (-0.5, PREFIX / BLOCK - 0.5)
    outlines = trace(figure, "shared, held above")
    assert outlines["x"].count(None) == 3
    assert {x for x in outlines["x"] if x is not None} == {-0.5, PREFIX / BLOCK - 0.5}


def test_a_click_fades_all_but_one_owner(cached: Reader) -> None:
    state = at(cached, 17, owner=5)
    own = int((state.blocks["request_id"] == 5).sum())
    for figure in (by_request(state, LIGHT), by_address(state, LIGHT)):
        drawn = trace(figure, "blocks")
        for codes, owners in zip(drawn["z"], drawn["customdata"], strict=True):
            for code, owner in zip(codes, owners, strict=True):
                assert code is None or (code < 4) == (owner == 5)
        bright = sum(
            count for code, count in cells(figure).items() if code is not None and code < 4
        )
        assert bright == own > 0
        assert figure["layout"]["meta"]["picks"]


@pytest.mark.parametrize("step", STEPS)
def test_by_address_draws_every_block(cached: Reader, run: CachedSimulation, step: int) -> None:
    state = at(cached, step)
    drawn = cells(by_address(state, LIGHT))
    kinds = Counter(kind for kind, _ in run.books[step].values())
    assert drawn[USED] + drawn[ROOM] == kinds["used"]
    assert drawn[CACHED] == kinds["cached"]
    assert drawn[FREE] == 120 - kinds["used"] - kinds["cached"]


def test_many_blocks_share_cells_and_keep_the_fullest() -> None:
    number = 3 * kv_map.MAX_CELLS
    rows = {"block": range(0, number, 3), "state": "cached", "request_id": None, "refs": 0}
    blocks = pd.DataFrame(rows | {"position": 0})
    blocks.loc[blocks["block"] == 300, ["state", "request_id", "refs"]] = ["used", 5, 1]
    holders = pd.DataFrame({"request_id": [5], "context_tokens": [16]})
    figure = by_address(Map(blocks, holders, 16, number), LIGHT)
    drawn = cells(figure)
    assert drawn == Counter({CACHED: kv_map.MAX_CELLS - 1, USED: 1, None: drawn[None]})
    assert "3 to a cell" in figure["layout"]["xaxis"]["title"]["text"]


def test_the_areas_are_the_steps(cached: Reader) -> None:
    end_ns = int(cached.value("SELECT max(t_start_ns) FROM steps"))
    rows = queries.series(cached, RUN_ID, 0, 60, end_ns, BLOCK)
    want = cached.frame("SELECT * FROM steps WHERE step <= 60 ORDER BY step")
    assert list(rows["used"]) == list(want["kv_blocks_used"])
    figure = kv_series(rows, BLOCK, 2.0, LIGHT)
    used, cache = want["kv_blocks_used"], want["kv_blocks_cached"]
    assert trace(figure, "cached")["y"][:-1] == list(used + cache)
    room = [
        sum(
            -c % BLOCK
            for (c,) in cached.rows(f"SELECT context_tokens FROM sequence_steps WHERE step = {s}")
        )
        for s in want["step"]
    ]
    assert list(rows["room_tokens"]) == room
    assert trace(figure, "used")["y"][:-1] == pytest.approx(
        [u - r / BLOCK for u, r in zip(used, room, strict=True)], rel=1e-4
    )


def test_bins_keep_their_fullest_step_and_sum_events(
    cached: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "MAX_BARS", 50)
    last = int(cached.value("SELECT max(step) FROM steps"))
    end_ns = int(cached.value("SELECT max(t_start_ns) FROM steps"))
    rows = queries.series(cached, RUN_ID, 0, last, end_ns, BLOCK)
    assert 25 < len(rows) <= 51 < last
    assert rows["used"].max() == cached.value("SELECT max(kv_blocks_used) FROM steps")
    assert rows["evictions"].sum() == cached.value("SELECT sum(evictions) FROM steps")


def test_how_many_more_fit_by_hand() -> None:
    """Mean context 50 -> 4 blocks of 16; 30 - 11 = 19 that nobody uses hold 4 of them."""
    state = {"kv_blocks_total": 30, "kv_blocks_used": 11, "kv_blocks_cached": 6}
    columns = {"request_id": [1.0, 1.0, 2.0, None], "refs": [3, 1, 1, 0]}
    holders = pd.DataFrame({"request_id": [1, 2], "context_tokens": [36, 64]})
    found = facts(state, pd.DataFrame(columns), holders, 16)
    assert (found.context, found.fits, found.free) == (50, 4, 13)
    assert (found.saved, found.most_shared) == (2, 3)
    assert found.room_tokens == 12
    assert found.room_share(16) == pytest.approx(12 / (11 * 16))


def test_a_budget_draws_only_what_is_known() -> None:
    gb = 1e9
    figure = kv_budget(Memory(16 * gb, 2 * gb, gb, gb, None, 72 * gb, 80 * gb), LIGHT)
    widths = {t["name"]: t["x"][0] / gb for t in figure["data"]}
    assert widths == {
        "weights": 16,
        "KV used": 2,
        "KV cached": 1,
        "KV free": 1,
        "free": 52,
        "kept for activations": 8,
    }
    bare = kv_budget(Memory(None, None, None, None, None), LIGHT)
    assert bare["data"] == []
    text = bare["layout"]["annotations"][1]["text"]
    assert text == "not reported: weights, KV bytes, activations, the machine's memory"


@pytest.mark.parametrize("view", ["request", "address"])
def test_the_page_in_words(cached: Reader, view: str) -> None:
    made = page.panels(cached, RUN_ID, {"map": view, "first": "5", "last": "17"}, DARK)
    json.dumps(made.figures, allow_nan=False)
    step = queries.state(cached, RUN_ID, 17)
    assert step is not None
    assert f"{step['kv_blocks_used']} of 120 KV blocks used" in made.html["headline"]
    assert made.html["counter"] == "steps 5 to 17"
    assert 'data-request="0"' in made.html["side"]
    assert set(made.figures) == {"budget", "map", "cache"}


def test_the_page_of_a_clicked_request(cached: Reader) -> None:
    shown = {"first": "0", "last": "3"}
    first = page.panels(cached, RUN_ID, {"request": "0", **shown}, LIGHT).html
    assert "r-0 holds" in first["headline"]
    assert "3 blocks are shared by 4." in first["headline"]
    assert 'aria-pressed="true"' in first["side"]
    second = page.panels(cached, RUN_ID, {"request": "1", **shown}, LIGHT).html["headline"]
    assert "Its first 3 blocks it shares with others." in second
    gone = page.panels(cached, RUN_ID, {"request": "99", **shown}, LIGHT).html["headline"]
    assert "r-99 is not in the batch at this step." in gone
    bad = page.panels(cached, RUN_ID, {"request": "<b>", **shown}, LIGHT).html["headline"]
    assert "KV blocks used" in bad


def test_a_source_that_tells_no_owners_says_so(reader: Reader) -> None:
    view = page.panels(reader, RUN_ID, {}, LIGHT)
    assert "map" not in view.figures
    assert "not reported by this source" in view.html["unmapped"]
    assert "of 640 KV blocks used" in view.html["headline"]


def test_a_source_without_sequences_shows_no_room(store: Store) -> None:
    run = cached_run()
    run.rows["sequence_steps"] = []
    run.write(store)
    view = page.panels(store.reader(), RUN_ID, {"first": "0", "last": "17"}, LIGHT)
    assert "room in last blocks: not reported" in view.html["side"]
    assert "room in last blocks" not in {t["name"] for t in view.figures["cache"]["data"]}
    assert "more sequences" not in view.html["headline"]


def test_unknown_counts_are_never_zero(store: Store) -> None:
    run = cached_run()
    run.rows["blocks"] = []
    names = ("kv_blocks_total", "kv_blocks_used", "kv_blocks_cached", "evictions")
    for row in run.rows["steps"]:
        row |= dict.fromkeys((*names, "recomputed_tokens", "preemptions"))
    run.write(store)
    view = page.panels(store.reader(), RUN_ID, {}, LIGHT)
    assert "KV blocks are not reported by this source." in view.html["headline"]
    text = json.dumps(view.figures, allow_nan=False)
    assert "blocks evicted: not reported" in text
    assert "not reported" in view.figures["budget"]["layout"]["annotations"][-1]["text"]
    assert not any(t.get("y") for t in view.figures["cache"]["data"] if t["type"] == "bar")


def test_dropped_changes_are_told(store: Store) -> None:
    run = cached_run()
    run.event("drop", '{"table": "blocks", "rows": 40}')
    run.write(store)
    headline = page.panels(store.reader(), RUN_ID, {}, LIGHT).html["headline"]
    assert "40 block changes were dropped" in headline


def test_a_run_without_steps_says_what_to_do(store: Store) -> None:
    Simulation().write(store)
    view = page.panels(store.reader(), RUN_ID, {}, LIGHT)
    assert not view.figures
    assert "No step has run yet" in view.html["headline"]
