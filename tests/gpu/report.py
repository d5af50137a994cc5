"""What the sections found, each measured time beside the least that the device allows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.gpu.sections import Result, Row

_NAMED = ("name", "op", "shape", "dtype")


@dataclass(slots=True)
class Report:
    """head: device and versions. ceilings: measured by the first section, by name."""

    head: dict[str, Any]
    rehearsal: bool = False
    results: list[Result] = field(default_factory=list)
    ceilings: dict[str, float] = field(default_factory=dict)

    def add(self, result: Result) -> None:
        self.results.append(result)
        if result.name == "ceilings":
            found = {row["name"]: row.get("ceiling") for row in result.rows}
            self.ceilings.update({k: v for k, v in found.items() if v is not None})
        for row in result.rows:
            row.update(self.derived(row))

    @property
    def passed(self) -> bool:
        wrong = [row for r in self.results for row in r.rows if row.get("passed") is False]
        return bool(self.results) and not wrong and all(r.ended == "done" for r in self.results)

    def derived(self, row: Row) -> Row:
        """Rates of a row with a time, and the modelled time: the roof, and a launch."""
        time_s, moved, flops = row.get("seconds"), row.get("bytes"), row.get("flops")
        if time_s is None or row.get("ceiling") is not None:
            return {}
        rates: Row = {}
        if moved is not None:
            rates["gb_per_s"] = moved / time_s / 1e9
        if flops is not None:
            rates["tflop_per_s"] = flops / time_s / 1e12
        modelled = self.modelled_s(moved or 0.0, flops or 0.0)
        return rates if modelled is None else {**rates, "modelled_s": modelled,
                                               "of_roof": modelled / time_s}  # fmt: skip

    def modelled_s(self, moved: float, flops: float) -> float | None:
        """None where a ceiling was not measured."""
        if not {"copy", "matmul", "launch"} <= set(self.ceilings):
            return None
        roof = max(moved / self.ceilings["copy"], flops / self.ceilings["matmul"])
        return roof + self.ceilings["launch"]

    def as_json(self) -> dict[str, Any]:
        sections = [
            {"name": r.name, "ended": r.ended, "took_s": round(r.took_s, 1), "fault": r.fault,
             "rows": r.rows}
            for r in self.results
        ]  # fmt: skip
        head = {**self.head, "rehearsal": self.rehearsal, "passed": self.passed}
        return {**head, "ceilings": self.ceilings, "sections": sections}


def lines(report: Report, result: Result) -> Iterator[str]:
    """A section for people; correct rows are counted, not listed."""
    fault = f": {result.fault}" if result.fault else ""
    yield f"{result.name}: {result.ended} after {result.took_s:.0f} s{fault}"
    judged = [row for row in result.rows if "passed" in row]
    if judged:
        yield f"  {sum(row['passed'] for row in judged)} of {len(judged)} right"
    for row in result.rows:
        if not row.get("passed", False):
            yield "  " + _line(row)


def _line(row: Row) -> str:
    what = " ".join(str(row[key]) for key in _NAMED if row.get(key) is not None)
    numbers = [f"{key} {value:.4g}" for key, value in row.items() if isinstance(value, float)]
    return "  ".join([what, *numbers, *filter(None, [row.get("failure")])])
