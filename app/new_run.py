"""A new run from the run selector: another engine in this server, modelled or back on the CPU."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import state
from app.units import si
from engine.config import MODELLED_DTYPES, MODELLED_KV_DTYPES, EngineConfig
from engine.errors import UserError
from engine.modelled_setup import modelled_setup
from engine.physics.catalogue import devices, models

if TYPE_CHECKING:
    from engine.messages import Status

MODELLED, CPU = "new:modelled", "new:cpu"
ENTRIES = {MODELLED: "+ new run: modelled …", CPU: "+ new run: this CPU"}
_FIRST_DEVICE, _FIRST_MODEL = "h100-sxm", "llama-3.1-8b"
_PARALLEL = (1, 2, 4, 8, 16)
_BATCHES = (8, 16, 32, 64, 128, 256)
_FEWEST_SLOTS = 64  # a device of this size with a laptop's slots would only ever read its weights


def offer(choice: str | None) -> None:
    """Do what was chosen in the run selector: ask for the device, or start at once."""
    current = state.session()
    if current is None or choice is None:
        return
    if choice == MODELLED:
        _ask()
    else:
        _begin(current, current.cpu_config)


@st.dialog("New run on a modelled device", width="medium")
def _ask() -> None:
    current = state.session()
    if current is None:
        return
    wanted = _form(current)
    fits = _fits(wanted)
    if st.button("Start", type="primary", disabled=not fits, key="start_modelled"):
        _begin(current, wanted)


def _form(current: state.Session) -> EngineConfig:
    """The engine that the dialog's boxes ask for."""
    names = [name for name, model in models().items() if model.spec is not None]
    left, right = st.columns(2)
    device = left.selectbox(
        "Device",
        list(devices()),
        index=list(devices()).index(_FIRST_DEVICE),
        format_func=lambda name: devices()[name].title,
        key="new_device",
    )
    model = right.selectbox(
        "Model",
        names,
        index=names.index(_FIRST_MODEL),
        format_func=_model_title,
        accept_new_options=True,
        help="Or the path of a Hugging Face config.json.",
        key="new_model",
    )
    more = {**_sizes(current.status), **_fractions(), **_as_now(current)}
    return modelled_config(device, str(model), **more)


def modelled_config(device: str, model: str, **more: Any) -> EngineConfig:
    """An engine for a page to watch: its clock is held to real time. more: fields of the config."""
    return EngineConfig(
        model=model, device=device, backend="modelled", live=True, paced=True, **more
    )


def _model_title(name: str) -> str:
    return models()[name].title if name in models() else name


def _sizes(status: Status | None) -> dict[str, Any]:
    boxes = st.columns(4)
    slots = sorted({*_BATCHES, max(status.max_batch if status else 0, _FEWEST_SLOTS)})
    return {
        "dtype": boxes[0].selectbox("Weights", MODELLED_DTYPES, key="new_dtype"),
        "kv_dtype": boxes[1].selectbox("KV cache", MODELLED_KV_DTYPES, key="new_kv_dtype"),
        "tensor_parallel": boxes[2].selectbox("Tensor parallel", _PARALLEL, key="new_parallel"),
        "max_batch": boxes[3].selectbox(
            "Slots", slots, index=slots.index(_FEWEST_SLOTS), key="new_batch"
        ),
    }


def _fractions() -> dict[str, Any]:
    """None, an empty box, leaves it to the catalogue."""
    with st.expander("Assumptions"):
        boxes = st.columns(3)
        matmul = _share(boxes[0], "Matmul reaches", "as measured", "new_matmul")
        reading = _share(boxes[1], "Reading reaches", "0.85", "new_reading")
        overhead_ms = boxes[2].number_input(
            "Overhead, ms a step",
            min_value=0.0,
            max_value=1000.0,
            value=None,
            step=0.1,
            placeholder="0.1",
            key="new_overhead",
        )
    overhead_s = None if overhead_ms is None else overhead_ms / 1e3
    return {"matmul_fraction": matmul, "bandwidth_fraction": reading, "overhead_s": overhead_s}


def _share(place: Any, label: str, usual: str, key: str) -> float | None:
    value: float | None = place.number_input(
        label,
        min_value=0.01,
        max_value=1.0,
        value=None,
        step=0.05,
        placeholder=usual,
        help="Of the datasheet's peak.",
        key=key,
    )
    return value


def _as_now(current: state.Session) -> dict[str, Any]:
    """What the engine is set to, so that only the device changes.

    One that is still starting has not said so: then what it was started with.
    """
    begun = current.started_with.config
    names = ("scheduler", "chunk_tokens", "prefix_cache")
    modes = {name: getattr(current.status or begun, name) for name in names}
    return {**modes, "ttft_slo_s": begun.ttft_slo_s, "tpot_slo_s": begun.tpot_slo_s}


def _fits(wanted: EngineConfig) -> bool:
    """Whether it can run; the line below the boxes says how much fits, or why it does not."""
    try:
        setup = modelled_setup(wanted)
    except UserError as error:
        st.error(str(error))
        return False
    weights = si(setup.deployment.weight_bytes(setup.spec), "B")
    tokens = setup.capacity * setup.block_size
    room = f"{weights} of weights leave room for {tokens:,} tokens of KV cache"
    st.caption(f"{room} on {setup.device_title}.")
    return True


def _begin(current: state.Session, config: EngineConfig) -> None:
    """Start it under the load that runs, and show it."""
    if not config.modelled:
        config = replace(config, **_as_now(current))
    try:
        current.new_run(config, (current.status or current.started_with).load)
    except UserError as error:
        st.error(str(error))
        return
    st.session_state["shown_run"] = "live"
    st.rerun()
