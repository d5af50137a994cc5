"""Generated and recorded load."""

from engine.workloads.check import check_load
from engine.workloads.registry import WORKLOADS, load_workload
from engine.workloads.workload import Scale, WorkItem, Workload

__all__ = ["WORKLOADS", "Scale", "WorkItem", "Workload", "check_load", "load_workload"]
