"""Workloads, their prompts and files, and the load generator that releases them."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable
from datetime import datetime
from itertools import islice, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import UserError
from engine.request import Request
from engine.workloads import WORKLOADS, Workload, load_workload
from engine.workloads.chat import CONVERSATIONS, STREAMS, SYSTEM_TOKENS, TURNS
from engine.workloads.generator import LoadGenerator, clip
from engine.workloads.prompts import FOLDER, SYSTEM_PROMPT, PromptSource
from engine.workloads.traces import AZURE_SCALE, DATA, MOONCAKE_SCALE
from engine.workloads.workload import Piece, WorkItem

ROOT = Path(__file__).resolve().parents[2]
TRACES = ROOT.parent / "shared" / "traces"


class Words:
    """Splits at spaces; each word keeps one id."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def encode(self, text: str) -> list[int]:
        return [self.ids.setdefault(word, len(self.ids)) for word in text.split()]


@pytest.fixture(scope="module")
def prompts() -> PromptSource:
    return PromptSource(Words())


MakeGenerator = Callable[..., LoadGenerator]


@pytest.fixture
def generate(prompts: PromptSource) -> MakeGenerator:
    def make(
        workload: str | Workload = "steady",
        concurrency: int | None = None,
        rate: float | None = None,
        requests: int | None = None,
        seed: int = 0,
        max_context: int = 8192,
    ) -> LoadGenerator:
        if isinstance(workload, str):
            workload = load_workload(workload, seed=seed)
        return LoadGenerator(
            workload,
            prompts,
            concurrency=concurrency,
            rate=rate,
            requests=requests,
            seed=seed,
            max_context=max_context,
        )

    return make


def first(name: str, n: int, seed: int = 0) -> list[WorkItem]:
    return list(islice(load_workload(name, seed=seed).items, n))


# --- the built-in workloads ---


def test_skew_has_one_long_output_in_each_cohort_of_ten() -> None:
    items = list(load_workload("skew", seed=3, requests=40).items)
    for cohort in range(4):
        outputs = sorted(item.output_tokens for item in items[cohort * 10 : cohort * 10 + 10])
        assert outputs == [16] * 9 + [180]
    assert {item.label for item in items} == {"skew:long", "skew:short"}
    assert all(32 <= item.prompt_tokens <= 64 for item in items)
    assert load_workload("skew", seed=3).default_requests == 40


def test_longprompt_drops_long_prompts_in_regularly() -> None:
    items = first("longprompt", 60)
    long = [k for k, item in enumerate(items) if item.label == "longprompt:prompt"]
    assert long == list(range(5, 60, 6))
    assert all(960 <= items[k].prompt_tokens <= 1088 for k in long)
    assert all(items[k].output_tokens == 8 for k in long)


def test_longoutput_is_nearly_all_decode() -> None:
    items = first("longoutput", 60)
    assert {item.prompt_tokens for item in items} <= set(range(16, 49))
    assert all(128 <= item.output_tokens <= 224 for item in items)


def test_longcontext_asks_about_four_documents_that_the_prefix_cache_can_share() -> None:
    items = first("longcontext", 40)
    documents = [item.pieces[0] for item in items]
    assert {piece.tokens for piece in documents} == {1024}
    assert [piece.name for piece in documents[:5]] == [f"document {k}" for k in (0, 1, 2, 3, 0)]
    assert len({item.pieces[1].name for item in items}) == 40
    assert all(1040 <= item.prompt_tokens <= 1072 for item in items)


def test_steady_is_moderate_and_varied() -> None:
    items = first("steady", 300)
    assert {item.prompt_tokens for item in items} <= set(range(64, 193))
    assert len({item.output_tokens for item in items}) > 40


@pytest.mark.parametrize("name", WORKLOADS)
def test_items_depend_on_seed_and_index_alone(name: str) -> None:
    workload = load_workload(name, seed=7)
    items = list(islice(workload.items, 30))
    assert [load_workload(name, seed=7).item(k) for k in reversed(range(30))] == items[::-1]


SEEDED = ["skew", "steady", "longprompt", "longoutput", "longcontext", "chat"]


@pytest.mark.parametrize("name", SEEDED)
def test_another_seed_is_another_load(name: str) -> None:
    assert first(name, 30, seed=1) != first(name, 30, seed=2)


def test_requests_bound_the_stream() -> None:
    assert len(list(load_workload("steady", seed=0, requests=7).items)) == 7
    assert len(list(islice(load_workload("steady", seed=0).items, 5000))) == 5000


def test_unknown_names_list_the_known_and_the_nearest() -> None:
    with pytest.raises(UserError) as error:
        load_workload("stedy", seed=0)
    known = "azure-code, azure-conv, chat, longcontext, longoutput, longprompt, mooncake, skew"
    assert f"{known}, steady" in str(error.value)
    assert "did you mean 'steady'" in str(error.value)


@pytest.mark.parametrize("requests", [0, -1])
def test_no_requests_are_refused(requests: int) -> None:
    with pytest.raises(UserError, match=f"requests is {requests}: use 1 or more"):
        load_workload("skew", seed=0, requests=requests)


# --- chat ---

GROUP = CONVERSATIONS * TURNS


def chat_prompts(source: PromptSource, requests: int, seed: int = 0) -> list[tuple[int, ...]]:
    return [source.for_item(item, seed, k) for k, item in enumerate(first("chat", requests, seed))]


def reusable(prompts: list[tuple[int, ...]], block: int = 16) -> float:
    """Share of prompt tokens that a cache of whole blocks has seen, were each computed in turn."""
    seen: set[tuple[int, ...]] = set()
    hits = 0
    for prompt in prompts:
        ends = range(block, len(prompt), block)
        hits += max((end for end in ends if prompt[:end] in seen), default=0)
        seen.update(prompt[:end] for end in range(block, len(prompt) + 1, block))
    return hits / sum(map(len, prompts))


def test_a_turn_says_again_all_that_was_said(prompts: PromptSource) -> None:
    items = first("chat", GROUP)
    texts = chat_prompts(prompts, GROUP)
    for k in range(GROUP - CONVERSATIONS):
        later = k + CONVERSATIONS
        assert texts[later][: len(texts[k])] == texts[k]
        said = len(texts[k]) + items[k].output_tokens  # the answer's length is what was asked for
        assert 15 <= len(texts[later]) - said <= 45
    assert [item.label for item in items[::CONVERSATIONS]] == [
        f"chat:turn {turn}" for turn in range(1, TURNS + 1)
    ]


def test_conversations_share_the_system_prompt_and_nothing_else(prompts: PromptSource) -> None:
    texts = chat_prompts(prompts, 2 * GROUP)
    system = texts[0][:SYSTEM_TOKENS]
    assert all(text[:SYSTEM_TOKENS] == system for text in texts)
    others = texts[:CONVERSATIONS] + texts[GROUP : GROUP + CONVERSATIONS]
    assert len({text[SYSTEM_TOKENS : SYSTEM_TOKENS + 8] for text in others}) == len(others)


def test_the_system_prompt_is_whole_and_ends_inside_a_block(default_gguf: Path) -> None:
    from engine.models.loader import open_model

    tokenizer = open_model(str(default_gguf)).tokenizer
    assert len(tokenizer.encode(SYSTEM_PROMPT.read_text())) == SYSTEM_TOKENS
    assert SYSTEM_TOKENS % 16


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_most_of_a_chat_can_be_reused(prompts: PromptSource, seed: int) -> None:
    default = load_workload("chat", seed=seed).default_requests
    assert reusable(chat_prompts(prompts, default, seed)) > 0.8
    assert reusable([prompts.for_item(i, 0, k) for k, i in enumerate(first("steady", 40))]) < 0.02


def test_chat_is_a_closed_loop_of_its_own(generate: MakeGenerator) -> None:
    """A turn comes after the turn before it has been answered, for the most part."""
    assert CONVERSATIONS > STREAMS
    assert [len(generate("chat").poll(0.0, n)) for n in (0, 1, STREAMS)] == [STREAMS, 3, 0]
    assert len(generate("chat", concurrency=6).poll(0.0, 0)) == 6
    timed = generate("chat", rate=1.0)
    assert timed.concurrency is None
    assert timed.next_arrival_s() is not None
    assert not generate("chat").exhausted
    assert load_workload("chat", seed=0).default_requests == GROUP


# --- the Mooncake slice ---


def test_mooncake_is_a_tenth_of_the_conversations_as_published() -> None:
    if not TRACES.is_dir():
        pytest.skip("no shared folder beside this checkout")
    with (TRACES / "mooncake_conversation.jsonl").open() as file:
        kept = (line for line in file if json.loads(line)["hash_ids"][1] % 10 == 0)
        published = list(islice(kept, 1000))
    with (DATA / "mooncake_conversation_1000.jsonl").open() as file:
        assert list(file) == published


def test_mooncake_is_its_rows_times_one_scale() -> None:
    with (DATA / "mooncake_conversation_1000.jsonl").open() as file:
        source = [json.loads(line) for line in file]
    workload = load_workload("mooncake", seed=0)
    items = list(islice(workload.items, 1000))
    assert workload.scale == MOONCAKE_SCALE
    assert "prompts / 16, outputs / 8, time / 2" in workload.description
    prompts = [max(1, round(row["input_length"] / 16)) for row in source]
    assert [item.prompt_tokens for item in items] == prompts
    assert [item.output_tokens for item in items] == [
        max(1, round(row["output_length"] / 8)) for row in source
    ]
    assert items[-1].arrival_s == pytest.approx(
        (source[-1]["timestamp"] - source[0]["timestamp"]) / 2000
    )
    assert items[0].pieces == tuple(Piece(f"block {h}", 32) for h in source[0]["hash_ids"])


def test_scaling_keeps_what_mooncake_shares(prompts: PromptSource) -> None:
    """As much of the scaled prompts is shared as of the recorded ones, block by block."""
    with (DATA / "mooncake_conversation_1000.jsonl").open() as file:
        source = [json.loads(line) for line in islice(file, 200)]
    seen: set[int] = set()
    hits = 0
    for row in source:
        known = [h in seen for h in row["hash_ids"]]
        shared = known.index(False) if False in known else len(known)
        hits += min(512 * shared, row["input_length"])
        seen.update(row["hash_ids"])
    recorded = hits / sum(row["input_length"] for row in source)
    texts = [prompts.for_item(item, 0, k) for k, item in enumerate(first("mooncake", 200))]
    assert recorded > 0.3
    assert reusable(texts) == pytest.approx(recorded, abs=0.02)


# --- the Azure slices ---

AZURE = {"azure-conv": "azure_llm_2023_conv", "azure-code": "azure_llm_2023_code"}


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(islice(csv.DictReader(file), 1000))


@pytest.mark.parametrize("name", AZURE)
def test_slices_are_the_first_rows_as_published(name: str) -> None:
    if not TRACES.is_dir():
        pytest.skip("no shared folder beside this checkout")
    published = rows(TRACES / f"{AZURE[name]}.csv")
    assert rows(DATA / f"{AZURE[name]}_1000.csv") == published
    assert len(published) == 1000


@pytest.mark.parametrize("name", AZURE)
def test_traces_are_the_rows_times_one_scale(name: str) -> None:
    source = rows(DATA / f"{AZURE[name]}_1000.csv")
    workload = load_workload(name, seed=0)
    items = list(islice(workload.items, 1000))
    assert workload.scale == AZURE_SCALE
    prompts = [max(1, round(int(row["ContextTokens"]) / 8)) for row in source]
    outputs = [max(1, round(int(row["GeneratedTokens"]) / 4)) for row in source]
    assert sum(item.prompt_tokens for item in items) == sum(prompts)
    assert sum(item.output_tokens for item in items) == sum(outputs)
    start, end = (datetime.fromisoformat(source[i]["TIMESTAMP"]) for i in (0, -1))
    assert items[0].arrival_s == 0
    assert items[-1].arrival_s == pytest.approx(3 * (end - start).total_seconds(), abs=1e-4)


def test_a_trace_repeats_later_with_arrivals_still_in_order() -> None:
    items = first("azure-code", 2500)
    arrivals = [item.arrival_s or 0.0 for item in items]
    assert arrivals == sorted(arrivals)
    assert items[1000].prompt_tokens == items[0].prompt_tokens
    assert arrivals[1000] > arrivals[999]


def test_the_licence_travels_with_the_slices() -> None:
    readme = (DATA / "README.md").read_text()
    assert "CC-BY 4.0" in readme
    assert "Splitwise" in readme
    assert "Apache-2.0" in readme
    assert "Mooncake" in readme
    assert all(path.name in readme for path in DATA.iterdir() if path.name != "README.md")


# --- files ---

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
GOOD = "2023-11-16 18:15:46.6805900,374,44\n"


def test_a_csv_file_is_taken_as_written(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(HEADER + "2023-11-16 18:15:48.18,10,2\n" + GOOD)
    workload = load_workload(str(path), seed=0)
    assert workload.scale is None
    assert workload.default_requests == 2
    early, late = islice(workload.items, 2)  # sorted by arrival
    assert (early.arrival_s, early.prompt_tokens, early.output_tokens) == (0.0, 374, 44)
    assert late.arrival_s == pytest.approx(1.49941, abs=1e-5)
    assert early.label == "mine"


def test_a_jsonl_file_is_taken_as_written(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    lines = [
        {"timestamp": 500, "input_length": 700, "output_length": 5, "hash_ids": [0, 1]},
        {"timestamp": 2500, "input_length": 3, "output_length": 6, "prompt": "tell me more"},
    ]
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    one, two = islice(load_workload(str(path), seed=0).items, 2)
    blocks = (Piece("block 0", 512), Piece("block 1", 512))
    assert one == WorkItem(0.0, 700, 5, None, "mine", blocks, 1)
    assert two == WorkItem(2.0, 3, 6, "tell me more", "mine", line=2)


JSON = '{"timestamp": 0, "input_length": 5, "output_length": 5}\n'
BAD_FILES = [
    ("a.csv", "", "line 1 has no column TIMESTAMP"),
    ("a.csv", "TIMESTAMP,ContextTokens\n", "line 1 has no column GeneratedTokens"),
    ("a.csv", HEADER, "has no requests"),
    ("a.csv", HEADER + GOOD + "yesterday,1,1\n", "line 3 TIMESTAMP is 'yesterday': use a time"),
    ("a.csv", HEADER + GOOD + "2023-11-16 18:15:46,0,1\n", "line 3 ContextTokens is '0': use a"),
    ("a.csv", HEADER + "2023-11-16 18:15:46,1\n", "line 2 GeneratedTokens is None"),
    ("a.csv", HEADER + "2023-11-16 18:15:46,1,-4\n", "line 2 GeneratedTokens is '-4'"),
    ("a.jsonl", JSON + "{oops\n", "line 2 is not JSON"),
    ("a.jsonl", "[1]\n", "line 1 is not an object"),
    ("a.jsonl", JSON.replace("5}", "0}"), "line 1 output_length is 0: use a whole number"),
    ("a.jsonl", JSON.replace('"input_length": 5, ', ""), "line 1 input_length is None"),
    ("a.jsonl", JSON.replace("0,", "-1,"), "line 1 timestamp is -1: use milliseconds"),
    ("a.jsonl", JSON.replace("0,", "NaN,"), "line 1 timestamp is nan"),
    ("a.jsonl", JSON.replace("}", ', "prompt": 7}'), "line 1 prompt is 7"),
    ("a.jsonl", JSON.replace("}", ', "hash_ids": ["a"]}'), "line 1 hash_ids is not a list"),
    ("a.txt", "x", "use a file that ends in .csv or .jsonl"),
]


@pytest.mark.parametrize(("name", "content", "message"), BAD_FILES)
def test_a_bad_file_gets_one_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(UserError) as error:
        load_workload(str(path), seed=0)
    assert message in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_binary_file_gets_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(bytes(range(256)))
    with pytest.raises(UserError, match="cannot be read"):
        load_workload(str(path), seed=0)


def test_a_missing_file_is_not_an_unknown_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        load_workload(str(tmp_path / "none.jsonl"), seed=0)


# --- prompts ---


@given(st.integers(1, 60_000), st.integers(0, 2**32))
def test_prompts_have_the_exact_length(n: int, seed: int) -> None:
    source = PromptSource(Words())
    assert len(source.cut(n, random.Random(seed))) == n
    assert source.cut(n, random.Random(seed)) == source.cut(n, random.Random(seed))


def test_prompts_are_pieces_of_the_texts(prompts: PromptSource) -> None:
    piece = prompts.cut(50, random.Random(1))
    whole = Words().encode("\n\n".join(p.read_text() for p in sorted(FOLDER.glob("*.txt"))))
    assert any(tuple(whole[i : i + 50]) == piece for i in range(len(whole)))


def test_there_is_enough_text_and_no_markers() -> None:
    texts = {path.name: path.read_text() for path in FOLDER.glob("*.txt")}
    assert 30_000 <= sum(map(len, texts.values())) <= 80_000
    assert not [name for name, text in texts.items() if "<|" in text or "\t" in text]


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no \.txt files"):
        PromptSource(Words(), tmp_path)


def test_a_written_prompt_is_used_word_for_word() -> None:
    words = Words()
    source = PromptSource(words)
    item = WorkItem(0.0, 99, 5, "three little words", "x")
    assert source.for_item(item, 0, 0) == tuple(words.encode("three little words"))


def test_equal_hashes_share_their_prefix(prompts: PromptSource) -> None:
    def prompt(*hashes: int, tokens: int) -> tuple[int, ...]:
        blocks = tuple(Piece(f"block {h}", 512) for h in hashes)
        return prompts.for_item(WorkItem(0.0, tokens, 1, None, "x", blocks), 0, 0)

    one, two = prompt(4, 5, tokens=1000), prompt(4, 6, tokens=1024)
    assert (len(one), len(two)) == (1000, 1024)
    assert one[:512] == two[:512]
    assert one[512:] != two[512:1000]
    assert len(prompt(4, tokens=700)) == 700


# --- the generator ---


def run_closed(generator: LoadGenerator, lifetimes: random.Random) -> tuple[list[Request], int]:
    """Play an engine whose requests end at random; returns all requests and most in flight."""
    requests: list[Request] = []
    in_flight = most = 0
    while not generator.exhausted:
        due = generator.poll(0.0, in_flight)
        assert all(arrival is None for arrival, _ in due)
        requests += [request for _, request in due]
        in_flight += len(due)
        most = max(most, in_flight)
        in_flight -= lifetimes.randint(0, in_flight)
    return requests, most


@pytest.mark.parametrize("concurrency", [1, 3, 16])
def test_a_closed_loop_keeps_its_streams_busy_and_no_more(
    generate: MakeGenerator, concurrency: int
) -> None:
    generator = generate(concurrency=concurrency, requests=60)
    requests, most = run_closed(generator, random.Random(0))
    assert len(requests) == 60
    assert most == concurrency
    assert generator.next_arrival_s() is None


def test_closed_loop_tops_up_to_its_concurrency(generate: MakeGenerator) -> None:
    generator = generate(concurrency=5)
    assert [len(generator.poll(0.0, n)) for n in (0, 5, 3, 9)] == [5, 0, 2, 0]


def test_what_is_asked_does_not_depend_on_when(generate: MakeGenerator) -> None:
    one, _ = run_closed(generate(concurrency=2, requests=25), random.Random(1))
    two, _ = run_closed(generate(concurrency=9, requests=25), random.Random(2))
    timed = [request for _, request in generate(rate=5.0, requests=25).poll(1e9, 0)]
    assert one == two == timed


def test_requests_carry_exact_lengths_and_labels(generate: MakeGenerator) -> None:
    due = generate("skew", requests=20).poll(0.0, 0)
    items = first("skew", 20)
    assert [len(r.prompt_token_ids) for _, r in due] == [i.prompt_tokens for i in items]
    assert [r.sampling.max_tokens for _, r in due] == [i.output_tokens for i in items]
    assert [r.label for _, r in due] == [i.label for i in items]
    assert all(r.sampling.ignore_eos and r.sampling.temperature == 0 for _, r in due)


def test_untimed_workloads_are_all_there_at_once_and_end(generate: MakeGenerator) -> None:
    generator = generate("skew")
    due = generator.poll(0.0, 0)
    assert [arrival for arrival, _ in due] == [0.0] * 40
    assert generator.exhausted
    assert generator.poll(1e9, 0) == []
    assert generator.next_arrival_s() is None


@pytest.mark.parametrize("rate", [0.5, 20.0])
def test_open_loop_arrives_at_its_mean_rate(generate: MakeGenerator, rate: float) -> None:
    generator = generate(rate=rate, requests=3000)
    arrivals = []
    while not generator.exhausted:
        arrivals += [arrival or 0.0 for arrival, _ in generator.poll(1e9, 0)]
    assert arrivals == sorted(arrivals)
    assert 3000 / arrivals[-1] == pytest.approx(rate, rel=0.1)  # five standard errors
    gaps = [b - a for a, b in pairwise(arrivals)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert deviation == pytest.approx(mean, rel=0.1)  # exponential, not regular


def test_open_loop_releases_only_what_has_arrived(generate: MakeGenerator) -> None:
    generator = generate(rate=10.0)
    when = generator.next_arrival_s()
    assert when is not None
    assert generator.poll(when - 1e-9, 0) == []
    due = generator.poll(when, 1000)  # however many are in flight
    assert [arrival for arrival, _ in due] == [when]
    following = generator.next_arrival_s()
    assert following is not None
    assert following > when


def test_open_loop_arrivals_follow_the_seed(generate: MakeGenerator) -> None:
    def arrivals(seed: int) -> list[float | None]:
        return [a for a, _ in generate(rate=3.0, requests=20, seed=seed).poll(1e9, 0)]

    assert arrivals(1) == arrivals(1) != arrivals(2)


def test_a_trace_arrives_at_its_own_times(generate: MakeGenerator) -> None:
    generator = generate("azure-conv", requests=50)
    expected = [item.arrival_s for item in first("azure-conv", 50)]
    half = generator.poll(expected[24] or 0.0, 0)
    rest = generator.poll(1e9, 0)
    assert [a for a, _ in half] + [a for a, _ in rest] == expected
    assert len(half) == 25


def test_a_bound_of_the_workload_holds_too(generate: MakeGenerator) -> None:
    bounded = load_workload("steady", seed=0, requests=4)
    assert len(generate(bounded, rate=1.0).poll(1e9, 0)) == 4


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(2, 4096))
def test_clipping_fits_and_touches_only_what_does_not(prompt: int, output: int, room: int) -> None:
    clipped = clip(prompt, output, room)
    assert sum(clipped) == min(prompt + output, room)
    assert min(clipped) >= 1
    assert clipped[0] <= prompt
    assert clipped[1] <= output


def test_clipping_is_recorded(generate: MakeGenerator) -> None:
    generator = generate("longprompt", requests=12, max_context=256)
    due = generator.poll(0.0, 0)
    assert all(len(r.prompt_token_ids) + r.sampling.max_tokens <= 256 for _, r in due)
    assert generator.clipped == 2
    assert generator.settings["max_context"] == 256


def test_a_file_of_ones_own_is_refused_rather_than_clipped(
    generate: MakeGenerator, tmp_path: Path
) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(HEADER + GOOD + "2023-11-16 18:15:46,250,7\n")
    workload = load_workload(str(path), seed=0)
    assert len(generate(workload, max_context=2048, requests=2).poll(1e9, 0)) == 2
    with pytest.raises(UserError, match=r"line 3: prompt of 250 tokens \+ 7 .* = 257, .* is 256"):
        generate(load_workload(str(path), seed=0), max_context=256, requests=2)


def test_settings_say_what_shaped_the_load(generate: MakeGenerator) -> None:
    settings = json.loads(json.dumps(generate("azure-code", rate=2.0, seed=9).settings))
    assert settings["scale"] == {"prompt": 0.125, "output": 0.25, "time": 3.0}
    assert (settings["workload"], settings["rate"], settings["seed"]) == ("azure-code", 2.0, 9)


BAD_SETTINGS = [
    ({"rate": -1.0}, r"rate is -1\.0: use more than 0 and at most 1,000 requests/s"),
    ({"rate": 0.0}, r"rate is 0\.0"),
    ({"rate": float("nan")}, "rate is nan"),
    ({"rate": float("inf")}, "rate is inf"),
    ({"concurrency": 0}, "concurrency is 0: use 1 or more"),
    ({"concurrency": -3}, "concurrency is -3"),
    ({"requests": 0}, "requests is 0"),
    ({"max_context": 1}, "max_context is 1"),
    ({"rate": 1.0, "concurrency": 1}, "give one"),
]


@pytest.mark.parametrize(("settings", "message"), BAD_SETTINGS)
def test_impossible_loads_are_refused(
    generate: MakeGenerator, settings: dict[str, float], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        generate(**settings)
