// One figure in the page: drawn in place, so that zoom and hover survive, and what a person does in
// it is told: a stretch that was dragged over, a step or a request that was clicked.

let loading = null;

export function plotly() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "/stepscope/plotly/plotly.min.js";
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => { loading = null; reject(new Error("plotly.js did not load")); };
    document.head.appendChild(script);
  });
  return loading;
}

// Drag zooms and a double click shows all again; a tool bar or a tip would cover the page's words.
const CONFIG = {
  displaylogo: false, responsive: false, doubleClick: false, displayModeBar: false, showTips: false,
};

function same(a, b) {
  return a && b && a.every((v, i) => Math.abs(v - b[i]) <= 1e-9 + 1e-6 * Math.abs(b[1] - b[0]));
}

function axes(layout) {
  return Object.keys(layout).filter((name) => /^[xy]axis\d*$/.test(name));
}

const FOLLOW = "follow";
// A stretch in which nothing ran becomes no window: then the chart shows all again.
const PATIENCE_MS = 2500;
// A press that moves less far is a click, and a thin bar may be missed by as much; CSS pixels.
const SLACK_PX = 4;
const DOUBLE_MS = 500;

// `layout.meta` says what a chart can choose. selects: {axis: "step", or the instant of its zero as
// nanoseconds}; a drag along that axis is a window of steps. steps: {by, first, last}: a click on a
// bar (by "x", anywhere above it) or on a point (by "point") chooses its step, and holds the window.
export class Chart {
  constructor(div, report = null, pick = null) {
    Object.assign(this, { div, report, pick, zoom: {}, resets: 0, busy: false });
  }

  async draw(figure) {
    this.wanted = figure;
    if (this.busy || this.div._dragging) return;
    this.busy = true;
    try {
      const Plotly = await plotly();
      while (this.wanted && !this.div._dragging && this.div.isConnected) {
        const next = this.wanted;
        this.wanted = null;
        this.base = next.layout;
        await Plotly.react(this.div, next.data, this.zoomed(next.layout), CONFIG);
        this.listen(Plotly);
        this.hover();
      }
    } finally { this.busy = false; }
  }

  zoomed(layout) {
    const uirevision = `${layout.uirevision}-${this.resets}`;
    // Asking the page for a width makes it lay out anew: the observer knows it.
    const out = { ...layout, uirevision, width: this.width || this.div.clientWidth };
    // Copies: plotly writes a person's ranges into the layout that it was given.
    for (const name of axes(out)) {
      const range = this.zoom[name] ?? out[name].range;
      const zoom = this.zoom[name] ? { autorange: false } : {};
      out[name] = { ...out[name], ...(range && { range: [...range] }), ...zoom };
    }
    return out;
  }

  listen(Plotly) {
    if (this.listening) return;
    this.listening = true;
    this.div.on("plotly_relayout", () => this.keep());
    this.div.on("plotly_doubleclick", () => this.double());
    this.div.on("plotly_click", ({ points: [point] }) => {
      if (this.base.meta?.picks && point?.customdata != null) this.pick?.(point.customdata);
      if (this.base.meta?.steps?.by === "point") this.chooseStep(point?.customdata);
    });
    this.clicks();
    this.div.addEventListener("dblclick", () => this.double());
    this.div.addEventListener("mousemove", (e) => { if (e.isTrusted) this.pointer = e; });
    this.div.addEventListener("mouseleave", () => { this.pointer = null; });
    this.sized = new ResizeObserver(() => {
      if (this.div.clientWidth && this.div.clientWidth !== this.width) this.redraw();
      this.width = this.div.clientWidth;
    });
    this.width = this.div.clientWidth;
    this.sized.observe(this.div);
  }

  // An axis that is not where the figure put it was zoomed by a person.
  keep() {
    for (const name of axes(this.base)) {
      const range = this.div.layout[name]?.range;
      if (!range || !this.base[name].range) continue;
      if (same(range, this.base[name].range)) delete this.zoom[name];
      else if (this.report && this.base.meta?.selects?.[name]) this.select(name, range);
      else this.zoom[name] = [...range];
    }
  }

  // The chart stays as it was dragged until the figure of the chosen window is there.
  select(name, [from, to]) {
    const zero = this.base.meta.selects[name];
    const [low, high] = this.base[name].range;
    if (to <= low || from >= high) return this.reset();
    const steps = { first: Math.floor(from), last: Math.max(Math.ceil(to) - 1, Math.floor(from)) };
    this.report(zero === "step" ? steps : { zero_ns: zero, from, to });
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.reset(), PATIENCE_MS);
  }

  chooseStep(step) {
    const { first, last } = this.base.meta.steps;
    if (this.report && Number.isInteger(step)) this.report({ step, first, last });
  }

  // Plotly's own clicks want the pointer on the bar: a short one would be hard to hit.
  clicks() {
    let pressed = null;
    this.div.addEventListener("pointerdown", (e) => { pressed = e; }, true);
    window.addEventListener("pointerup", this.lifted = (e) => {
      const moved = pressed && Math.hypot(e.clientX - pressed.clientX, e.clientY - pressed.clientY);
      if (pressed && moved < SLACK_PX && this.base.meta?.steps?.by === "x") {
        this.chooseStep(this.stepAt(pressed));
      }
      pressed = null;
    }, true);
  }

  stepAt(event) {
    const { xaxis, yaxis } = this.div._fullLayout;
    const box = this.div.getBoundingClientRect();
    const x = event.clientX - box.left - xaxis._offset;
    const y = event.clientY - box.top;
    if (x < 0 || x > xaxis._length || y < yaxis._offset || y > yaxis._offset + yaxis._length) return;
    let best = { away: SLACK_PX };
    for (const { type, x: xs, width, customdata } of this.div.data) {
      if (type !== "bar" || !customdata) continue;
      for (let i = 0; i < xs.length; i += 1) {
        const half = Math.abs(xaxis.d2p(xs[i] + width[i] / 2) - xaxis.d2p(xs[i]));
        const away = Math.max(Math.abs(xaxis.d2p(xs[i]) - x) - half, 0);
        if (away < best.away) best = { away, step: customdata[i] };
      }
    }
    return best.step;
  }

  // A double click shows all again: the newest steps, where the window was held. Plotly tells of it
  // unless the figure was drawn between the clicks, the page always: once is enough.
  double() {
    this.reset();
    const held = new URLSearchParams(location.search).has("first");
    const told = performance.now() - (this.let ?? -Infinity) < DOUBLE_MS;
    if (told || !held || !this.report || !this.base.meta?.selects) return;
    this.let = performance.now();
    this.report(FOLLOW);
  }

  // Plotly keeps a person's ranges for as long as uirevision stays.
  reset() {
    clearTimeout(this.waiting);
    this.zoom = {};
    this.resets += 1;
    return this.redraw();
  }

  // Another window is coming: its figure is shown whole.
  renew() { this.fresh = true; }

  redraw() {
    return this.last && this.draw(this.last);
  }

  // Plotly drops its hover label on an update: put it back where the pointer still is.
  hover() {
    const at = this.pointer;
    if (!at || !this.div.matches(":hover")) return;
    const target = document.elementFromPoint(at.clientX, at.clientY);
    target?.dispatchEvent(new MouseEvent("mousemove", {
      bubbles: true, clientX: at.clientX, clientY: at.clientY, view: window }));
  }

  show(figure) {
    this.last = figure;
    const renewed = this.fresh && figure.layout.meta?.selects;
    this.fresh = false;
    return renewed ? this.reset() : this.draw(figure);
  }

  close() {
    clearTimeout(this.waiting);
    window.removeEventListener("pointerup", this.lifted, true);
    this.sized?.disconnect();
    window.Plotly?.purge(this.div);
  }
}
