"""The navigation: run by Streamlit for every visitor and rerun, so it stays tiny."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from app.dashboard_files import ICON, style

PAGES = Path(__file__).resolve().parent.parent / "pages"

st.set_page_config(page_title="Stepscope", page_icon=ICON, layout="wide")
st.html(f'<div class="ss-style"></div><style>{style()}</style>')
entries = [
    st.Page(PAGES / "live.py", title="Live", url_path="live", default=True),
    st.Page(PAGES / "roofline.py", title="Roofline", url_path="roofline"),
    st.Page(PAGES / "interference.py", title="Interference", url_path="interference"),
    st.Page(PAGES / "scheduling.py", title="Scheduling", url_path="scheduling"),
    st.Page(PAGES / "kv_cache.py", title="KV cache", url_path="kv-cache"),
    st.Page(PAGES / "requests.py", title="Requests", url_path="requests"),
    st.Page(PAGES / "kernels.py", title="Kernels", url_path="kernels"),
    st.Page(PAGES / "what_if.py", title="What-if", url_path="what-if"),
]
st.navigation(entries, position="top").run()
