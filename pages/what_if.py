"""What-if: one step of any model on any device, from its address alone; no engine, no run."""

from app import scene_menu
from app.live.component import what_if
from app.panels.what_if_controls import page

what_if(page())
scene_menu.alone("what-if")
