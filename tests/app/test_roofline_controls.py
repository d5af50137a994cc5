"""What can be compared on the Roofline page: what this machine measured and the catalogue has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app import state
from telemetry.store import Store
from tests.app.fake import FakeSession
from tests.app.test_pages import opened
from tests.app.test_roofline_page import Measured


@pytest.fixture
def fake() -> Iterator[FakeSession]:
    store = Store(None)
    simulation = Measured(slots=2)
    simulation.arrive(2)
    simulation.advance()
    simulation.write(store)
    made = FakeSession(store)
    state.hold(made)
    yield made
    state.hold(None)
    store.close()


def test_what_is_offered_is_what_is_known(fake: FakeSession) -> None:
    at = opened("roofline")
    assert at.selectbox(key="compare_dtype").options == ["no dtype", "fp32 beside bf16"]
    assert "H100 SXM 80 GB" in at.selectbox(key="compare_device").options
    at.selectbox(key="compare_device").select("h100-sxm").run()
    assert at.selectbox(key="compare_dtype").options[2:] == ["fp16 beside bf16", "fp8 beside bf16"]
    at.selectbox(key="compare_dtype").select("fp8").run()
    assert not at.exception


def test_a_dtype_that_went_with_its_device_is_let_go(fake: FakeSession) -> None:
    at = opened("roofline")
    at.selectbox(key="compare_device").select("h100-sxm").run()
    at.selectbox(key="compare_dtype").select("fp8").run()
    at.selectbox(key="compare_device").select("none").run()
    assert not at.exception
    assert at.selectbox(key="compare_dtype").value == "none"
