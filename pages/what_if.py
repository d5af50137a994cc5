"""What-if: one step of any model on any device, from its address alone; no engine, no run."""

from app import scene_menu
from app.live.component import still
from app.panels.what_if_controls import page

still("what_if", page())
scene_menu.alone("what-if")
