// The What-if page: no engine and no run are needed, and nothing waits for a rerun of the page.
// State for tests and for the curious: window.__stepscope.whatIf = { asked, drawn, compared,
// ms, query }.

// The same tag as this script's, so that a browser keeps no older one.
const beside = (name) => import(new URL(name + new URL(import.meta.url).search, import.meta.url));
const [live, { KINDS }, { Still, element, mounted }] = await Promise.all(
  [beside("./live.js"), beside("./what_if_controls.js"), beside("./still.js")]);
const page = (window.__stepscope.whatIf ??= {
  asked: 0, drawn: 0, compared: 0, ms: null, query: null });

class WhatIf extends Still {
  constructor(host, data) {
    live.plotly().catch(() => {});  // long to parse: begin before the first figure comes
    super(host, data, page, "what-if");
    this.outside = (event) => {
      if (!this.details.contains(event.target)) this.details.open = false;
    };
    this.escape = (event) => { if (event.key === "Escape") this.details.open = false; };
    document.addEventListener("pointerdown", this.outside);
    document.addEventListener("keydown", this.escape);
  }

  build() {
    const place = Object.fromEntries(["bar", "row", "more", "compare"].map((name) =>
      [name, element("div", { class: `wi-${name}` })]));
    this.missed = {};
    this.controls = this.data.controls.map((control) => {
      const made = KINDS[control.kind](control, (value, done = true) =>
        this.change({ [control.key]: value }, done));
      place[control.place].append(made.node);
      return [control.key, made];
    });
    this.details = element("details", { class: "wi-details" },
      element("summary", { id: "ss-badge", class: "ss-badge modelled" }, "MODELLED"),
      element("div", { class: "wi-pop" }, place.more, element("div", { id: "ss-assumptions" })));
    place.bar.append(this.details);
    place.row.append(this.link());
    this.host.className = "ss-root ss-mount wi";
    this.host.replaceChildren(place.bar,
      element("div", { class: "ss-html ss-headline", id: "ss-headline" }),
      this.chips(), place.row, this.panels(),
      element("section", { class: "wi-side" }, place.compare, element("div", { id: "ss-table" })),
      element("div", { id: "ss-footnotes", class: "wi-notes" }));
    this.table = this.host.querySelector("#ss-table");
    this.words = this.places(this.table);
  }

  panels() {
    const grid = element("div", { class: "wi-grid" });
    for (const panel of this.data.panels) {
      const div = element("div", { id: `ss-${panel.id}`, class: `ss-panel ss-${panel.kind}` });
      if (panel.height) div.style.height = `${panel.height}px`;
      if (panel.area) div.style.gridArea = panel.area;
      if (panel.kind === "figure") this.charts[panel.id] = new live.Chart(div);
      grid.append(div);
    }
    return grid;
  }

  show() {
    for (const [key, control] of this.controls) control.show(this.state[key]);
    super.show();
  }

  // The table below answers the question once for each device: it comes when nothing else waits.
  async rest() {
    const asked = page.asked;
    const { html } = await this.fetch("table");
    if (asked === page.asked) this.markup(this.table, "table", html.table);
    page.compared = asked;
  }

  // In the order of the page. While the slider runs ahead, the curves may miss two answers of three.
  async draw(view) {
    await super.draw(view);
    for (const [id, chart] of Object.entries(this.charts)) {
      chart.div.hidden = !(id in view.figures);
      if (chart.div.hidden) continue;
      if (this.again && this.data.patient.includes(id) && (this.missed[id] ?? 0) < 2) {
        this.missed[id] = (this.missed[id] ?? 0) + 1;
        continue;
      }
      this.missed[id] = 0;
      if (this.fresher(id, view.figures[id])) await chart.show(view.figures[id]);
    }
  }

  close() {
    document.removeEventListener("pointerdown", this.outside);
    document.removeEventListener("keydown", this.escape);
    super.close();
  }
}

export function mount(component) {
  return mounted(component, WhatIf);
}
