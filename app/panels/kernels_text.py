"""The sentences of the contract lab: what the contract says, and what comes of not having one."""

from __future__ import annotations

from html import escape

from app.panels import markup
from app.panels.kernels_facts import Lab, Route, Slot
from app.units import si

_SCALARS = {"int64": "Long", "int32": "Int"}


def headline(lab: Lab) -> str:
    """Whether the contract lets it pass, and what would come of it else."""
    if not lab.message:
        return markup.headline(
            "The contract passes.", "Every buffer is read with the dtype that it was written in."
        )
    return markup.headline("Stopped before the launch.", f"Without its contract {_harm(lab)}.")


def _harm(lab: Lab) -> str:
    """What a kernel without a contract would do."""
    if any(route.experts is None for route in lab.routes):
        return "the router reads past the end of its buffers"
    if not all(route.right for route in lab.routes):
        return "the router sends tokens to wrong experts, and nothing tells"
    return "the router writes two numbers where its caller reads one"


def message(lab: Lab) -> str:
    """The contract's own line, as a launcher raises it."""
    if lab.message:
        return f'<code class="kn-said"><b>ContractError</b> {escape(lab.message)}</code>'
    sizes = "rows 4, k 2, experts 8, vocab 6"
    return f'<code class="kn-said kn-passed"><b>passes</b> router: {sizes}; launched</code>'


def scalar(slot: Slot) -> str:
    """How an op that looks for itself complains, as in the story: the tensor's type against its
    pointer's."""
    return f"expected scalar type {_SCALARS[slot.pointer]} but found {_SCALARS[slot.given]}"


def size(value: int) -> str:
    """137 GB; below a thousand bytes every one counts."""
    return f"{value} B" if abs(value) < 1000 else si(float(value), "B")


def routes(lab: Lab) -> str:
    """Each token's way through the table, as meant and as read."""
    head = "".join(f"<th>{name}</th>" for name in ("token", "its experts", "the kernel reads", ""))
    body = "".join(_route(route, lab) for route in lab.routes)
    return f'<table class="kn-table"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _route(route: Route, lab: Lab) -> str:
    experts = ", ".join(str(expert) for expert in route.meant_experts)
    kind, what, so = _way(route, lab)
    cells = (str(route.meant_token), experts, what, so)
    return f'<tr class="{kind}">{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'


def _way(route: Route, lab: Lab) -> tuple[str, str, str]:
    if route.token is None:
        return "kn-bad", "past the end", "any number that lies there becomes a token"
    token = f"token {route.token:,}"
    if route.experts is None:
        away = size(route.offset or 0)
        return (
            "kn-bad",
            token,
            f"its row is {away} from the start, the table has {lab.table_bytes} B",
        )
    found = f"{token} → {', '.join(f'{expert:,}' for expert in route.experts)}"
    if any(not 0 <= expert < lab.experts for expert in route.experts):
        return "kn-bad", found, f"there are {lab.experts} experts"
    if not route.right:
        return "kn-bad", found, "wrong, and nothing tells"
    return "kn-ok", found, "right"


def operations(lab: Lab) -> str:
    """Why the path without a fused router works with any of these dtypes."""
    given = {slot.name: slot.given for slot in lab.slots}
    experts = " ".join("[" + ", ".join(map(str, row)) + "]" for row in lab.by_ops)
    steps = (
        (
            "hash_indices_table[input_tokens]",
            _both(given["hash_indices_table"], given["input_tokens"]),
        ),
        ("softplus(logits).sqrt()", "in the dtype of logits"),
        ("scores.gather(1, experts.long())", "takes int64 only, and says so: cast for it alone"),
    )
    rows = "".join(f"<li><code>{escape(op)}</code> {escape(seen)}</li>" for op, seen in steps)
    return (
        "<p>Without the fused router each op is called by itself, and looks at the dtype of each "
        "tensor that it is handed before it picks a kernel. Nothing is assumed from a neighbour, "
        f"so these four dtypes give the right experts: <b>{experts}</b>.</p><ol>{rows}</ol>"
        "<p>It costs a launch and a round through memory per op: why the fused one exists.</p>"
    )


def _both(table: str, tokens: str) -> str:
    return f"{table} rows by {tokens} indices, each as it is"


def notes(lab: Lab) -> str:
    """What is computed, and what is not claimed."""
    return (
        f"Of the {lab.combinations} combinations of these dtypes {lab.passing} pass. “All int64” "
        "is not among them; “all int32” is, until something behind the router wants int64, as "
        "expert parallelism's all-to-all did. The bytes are real, in buffers of four tokens and a "
        "table of six; what lies past an end is not known, and not shown. Reported and mended as "
        "vllm#40862 and #43425."
    )
