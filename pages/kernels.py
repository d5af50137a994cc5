"""Kernels: the contract lab, from its address alone; what a kernel may be given, and why."""

from app import scene_menu
from app.live.component import still
from app.panels.kernels import page

still("kernels", page())
scene_menu.alone("kernels")
