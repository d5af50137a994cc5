"""What the browser needs to draw the What-if page: its controls, presets, places and defaults."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from app.figures import batch_cost, budget, overlap, phases
from app.panels import markup
from app.panels.what_if_state import ALWAYS, DEFAULTS, State, option, text_of
from engine.physics.catalogue import devices, models
from engine.physics.composition import COMPOSITIONS
from engine.physics.model_spec import DTYPE_BYTES
from engine.physics.whatif import PHASES

MOST_BATCH = 1024
_WEIGHTS = ("fp32", "bf16", "fp16", "fp8", "int8", "int4")
_CONTEXTS = (0, 512, 1024, 4000, 4096, 8192, 32_768, 131_072)
_PARALLEL = (1, 2, 4, 8, 16)

Options = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Control:
    """One choice. kind: select, number, segments, toggles or slider; place: bar (the toolbar), row
    (beside the slider), more (behind the badge) or compare (over the table)."""

    field: str
    kind: str
    place: str
    label: str
    name: str
    options: Options = ()
    unit: str = ""
    help: str = ""
    placeholder: str = ""
    range: tuple[int, int] | None = None

    def to_json(self) -> dict[str, Any]:
        facts = asdict(self)
        return {**facts, "key": option(facts.pop("field"))}


def controls() -> list[Control]:
    """In the order in which they stand."""
    return [*_bar(), *_row(), *_more(), *_compare()]


def _same(values: tuple[Any, ...]) -> Options:
    return tuple((str(v), f"{v:,}" if isinstance(v, int) else str(v)) for v in values)


def _bar() -> list[Control]:
    named = tuple((m.name, m.title) for m in models().values())
    chips = tuple((d.name, d.title) for d in devices().values())
    stored = tuple(d for d in _WEIGHTS if d in DTYPE_BYTES)
    maths = tuple(sorted({dtype for d in devices().values() for dtype in d.peak_flops}))
    return [
        Control("model", "select", "bar", "", "Model", named),
        Control("device", "select", "bar", "", "Device", chips),
        Control("tensor_parallel", "select", "bar", "TP", "Tensor parallel", _same(_PARALLEL)),
        Control("dtype", "select", "bar", "weights", "Weights", _same(stored)),
        Control("kv_dtype", "select", "bar", "KV", "KV cache", _same(stored)),
        Control("math_dtype", "select", "bar", "math", "Math", _same(maths)),
        Control("phase", "segments", "bar", "", "Phase", _same(PHASES)),
    ]


def _row() -> list[Control]:
    context = Control(
        "context", "number", "row", "context", "Context", _same(_CONTEXTS), "tokens each"
    )
    prompt = Control(
        "prompt_tokens", "number", "row", "prompt", "Prompt", _same(_CONTEXTS[1:]), "tokens"
    )
    target = "A token may take at most this long"
    return [
        Control(
            "batch", "slider", "row", "", "Batch", range=(1, MOST_BATCH), help="sequences in a step"
        ),
        Control("batch", "number", "row", "batch", "Batch, exactly"),
        context,
        prompt,
        Control("tpot_slo_ms", "number", "row", "TPOT ≤", "TPOT target", (), "ms", target, "none"),
    ]


def _more() -> list[Control]:
    """What shapes the numbers and is seldom changed."""

    def number(field: str, label: str, unit: str = "", hint: str = "", empty: str = "") -> Control:
        return Control(field, "number", "more", label, label, (), unit, hint, empty)

    share = "A share of the datasheet's peak: 1 is the floor"
    return [
        number("matmul_fraction", "matmul reaches", "of peak", share),
        number("bandwidth_fraction", "reading reaches", "of peak", share),
        number("overhead_ms", "overhead", "ms a step"),
        number("link_bandwidth_gb", "link", "GB/s", "One way, per device", "datasheet"),
        number("usable_memory", "usable memory", "of all"),
        Control("expert_parallel", "select", "more", "experts over", "Expert parallel", _PARALLELS),
        Control(
            "composition", "select", "more", "step is", "Composition", _same(tuple(COMPOSITIONS))
        ),
        number("params", "parameters", "", "In place of the model's, such as 70e9", "model's"),
        number("active_params", "active", "a token", "In place of the model's", "model's"),
        number("peak_tflops", "peak", "TFLOP/s", "In place of the device's", "device's"),
        number("bandwidth_gb", "bandwidth", "GB/s", "In place of the device's", "device's"),
        number("memory_gb", "memory", "GB", "In place of the device's", "device's"),
        number("kv_bytes_per_token", "KV a token", "bytes", "In place of the model's", "model's"),
        number("output_tokens", "answer", "tokens", "For the whole answer's latency", "none"),
        number("price_per_hour", "price", "per device-hour", "Of one device", "none"),
    ]


_PARALLELS = tuple((str(n), f"{n} device" if n == 1 else f"{n} devices") for n in _PARALLEL)


def _compare() -> list[Control]:
    chips = tuple((name, name) for name in devices())
    stored = tuple(d for d in _WEIGHTS if d in DTYPE_BYTES and d != "fp32")
    return [
        Control("devices", "toggles", "compare", "compare", "Devices to compare", chips),
        Control("dtypes", "toggles", "compare", "weights", "Dtypes to compare", _same(stored)),
    ]


@dataclass(frozen=True, slots=True)
class Preset:
    """A case of the articles: what its chip says, their claim, and the choices that make it."""

    label: str
    help: str
    choices: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        chosen = {option(name): text_of(value) for name, value in self.choices.items()}
        return {"label": self.label, "help": self.help, "set": chosen}


_8B = {"model": "llama-3.1-8b", "dtype": "bf16", "kv_dtype": "bf16"}
PRESETS = (
    Preset("70B fp16: 42 against 0.14 ms", "About 300 times more time reading than computing", {}),
    Preset("8B: 4.8 ms", "Reading 16 GB caps one conversation at about 210 tokens/s", _8B),
    Preset(
        "16 × 32k: KV 64 GiB",
        "Sixteen conversations of 32k tokens read 64 GiB of KV and 16 GB of weights",
        _8B | {"batch": 16, "context": 32_768},
    ),
    Preset("70B FP8: 21 ms", "At most about 48 tokens/s per conversation", {"dtype": "fp8"}),
    Preset(
        "50 ms SLO: 122",
        "8 B parameters and 4,000 tokens each at 400 TFLOP/s: the memory binds, not the target",
        _8B | {"batch": 122, "context": 4000, "params": 8e9, "peak_tflops": 400.0},
    ),
    Preset(
        "DeepSeek V4: B* 9,640",
        "A direction, not a size: nobody runs such a batch on one device",
        {"model": "deepseek-v4-pro", "batch": 64},
    ),
    Preset(
        "4K prefill of a 70B",
        "300 ms, says the article: less than one H100's floor",
        {"phase": "prefill"},
    ),
)

_PLACES = (
    ("blank", "html", None, "1 / 1 / 2 / 3"),
    ("overlap", "figure", overlap.HEIGHT_PX, "2 / 1 / 4 / 2"),
    ("budget", "figure", budget.HEIGHT_PX, "2 / 2 / 3 / 3"),
    ("slo", "html", None, "4 / 1 / 5 / 2"),
    ("fit", "html", None, "3 / 2 / 5 / 3"),
    ("curves", "figure", batch_cost.HEIGHT_PX, "5 / 1 / 6 / 2"),
    ("phases", "figure", phases.HEIGHT_PX, "5 / 2 / 6 / 3"),
    ("facts", "html", None, "6 / 1 / 7 / 3"),
)


_LEGEND = (
    ("memory", "weights", ""),
    ("cached", "KV", ""),
    ("compute", "math", ""),
    ("decode", "decode", "dot"),
    ("prefill", "prefill", "dot"),
)


def page() -> dict[str, Any]:
    """Everything that `app/static/what_if.js` draws the page from."""
    start = State()
    return {
        "controls": [control.to_json() for control in controls()],
        "presets": [preset.to_json() for preset in PRESETS],
        "panels": [
            {"id": name, "kind": kind, "height": height, "area": area}
            for name, kind, height, area in _PLACES
        ],
        "defaults": {option(name): text_of(getattr(start, name)) for name in DEFAULTS},
        "always": [option(name) for name in ALWAYS],
        "patient": ["curves", "phases"],
        "legend": markup.legend(_LEGEND),
        "keep": [option(name) for name in ("devices", "dtypes", "price_per_hour")],
    }
