// The What-if page: its choices live in the address, its answers come from one request each.
//
// No engine and no run are needed, and nothing waits for a rerun of the page: while the slider is
// dragged one request follows the other, and only what changed is drawn again.
// State for tests and for the curious: window.__stepscope.whatIf = { asked, drawn, compared,
// ms, query }.

// The same tag as this script's, so that a browser keeps no older one.
const beside = (name) => import(new URL(name + new URL(import.meta.url).search, import.meta.url));
const [live, { KINDS, element }] = await Promise.all(
  [beside("./live.js"), beside("./what_if_controls.js")]);
const page = (window.__stepscope.whatIf ??= {
  asked: 0, drawn: 0, compared: 0, ms: null, query: null });

class WhatIf {
  constructor(host, data) {
    this.host = host;
    this.data = data;
    this.sent = {};
    this.missed = {};
    this.charts = {};
    live.plotly().catch(() => {});  // long to parse: begin before the first figure comes
    this.build();
    this.state = this.read();
    this.show();
    this.save();
    this.ask();
  }

  build() {
    const place = Object.fromEntries(["bar", "row", "more", "compare"].map((name) =>
      [name, element("div", { class: `wi-${name}` })]));
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
    this.words = [...this.host.querySelectorAll("[id^=ss-]")]
      .map((div) => [div.id.slice(3), div])
      .filter(([id, div]) => !(id in this.charts) && div !== this.table);
    this.host.addEventListener("click", (event) => this.clicked(event));
  }

  chips() {
    this.presets = this.data.presets.map((preset) => {
      const chip = element("button", { type: "button", class: "wi-chip", title: preset.help },
        preset.label);
      chip.addEventListener("click", () => this.change({ ...this.fresh(), ...preset.set }));
      return [preset, chip];
    });
    const legend = element("div", { class: "wi-legend" });
    legend.innerHTML = this.data.legend;
    return element("div", { class: "wi-chips", role: "group", "aria-label": "Presets" },
      ...this.presets.map(([, chip]) => chip), legend);
  }

  // What a preset does not name returns to its default; the comparison stays as it was chosen.
  fresh() {
    const kept = Object.fromEntries(this.data.keep.map((key) => [key, this.state[key]]));
    return { ...this.data.defaults, ...kept };
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

  link() {
    const button = element("button", { type: "button", class: "wi-chip wi-link",
      title: "The address reproduces this page" }, "Copy link");
    button.addEventListener("click", async () => {
      this.save();
      await copy(location.href);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy link"; }, 1500);
    });
    return button;
  }

  // Rows of the table and ways to make it fit carry the choice that they stand for.
  clicked(event) {
    const asked = event.target.closest("[data-set]");
    if (asked) this.change(Object.fromEntries(new URLSearchParams(asked.dataset.set)));
    if (event.target.closest("[data-copy]")) copy(event.target.closest("[data-copy]").dataset.copy);
  }

  // --- state and address ---

  read() {
    const given = new URLSearchParams(location.search);
    const known = Object.keys(this.data.defaults).filter((key) => given.has(key));
    const from = known.length ? given : new URLSearchParams(page.query ?? "");
    const state = { ...this.data.defaults };
    for (const key of Object.keys(state)) if (from.has(key)) state[key] = from.get(key);
    return state;
  }

  query() {
    const { defaults, always } = this.data;
    return Object.entries(this.state).filter(([key, value]) =>
      value !== defaults[key] || always.includes(key));
  }

  // Other parameters of the address are not ours. Its last state is kept for when a person returns.
  save() {
    const own = this.query().map(([key, value]) => `${key}=${encodeURIComponent(value)}`);
    page.query = own.join("&").replaceAll("%2C", ",");
    const others = [...new URLSearchParams(location.search)].filter(([key]) =>
      !(key in this.data.defaults));
    const rest = others.length ? `&${new URLSearchParams(others)}` : "";
    history.replaceState(history.state, "", `${location.pathname}?${page.query}${rest}`);
  }

  change(changes, done = true) {
    Object.assign(this.state, changes);
    this.show();
    if (done) this.save();
    this.ask();
  }

  show() {
    for (const [key, control] of this.controls) control.show(this.state[key]);
    for (const [preset, chip] of this.presets) {
      const wanted = { ...this.fresh(), ...preset.set };
      const on = Object.entries(wanted).every(([key, value]) => this.state[key] === value);
      chip.setAttribute("aria-pressed", on);
    }
  }

  // --- answers ---

  // One request at a time: what was chosen meanwhile is asked next, what lay between never.
  async ask() {
    page.asked += 1;
    this.since ??= performance.now();
    if (this.busy) { this.again = true; return; }
    this.busy = true;
    do {
      this.again = false;
      const asked = page.asked;
      try {
        await this.draw(await this.fetch("step"));
        this.host.dataset.connection = "open";
        if (!this.again) this.told(asked);
        if (!this.again) await this.compare();
      } catch (error) {
        this.lost(error);
      }
    } while (this.again && this.host.isConnected);
    this.busy = false;
  }

  // The table below answers the question once for each device: it comes when nothing else waits.
  async compare() {
    const asked = page.asked;
    const { html } = await this.fetch("table");
    if (asked === page.asked) this.markup(this.table, "table", html.table);
    page.compared = asked;
  }

  async fetch(part) {
    this.theme = live.look();
    document.documentElement.dataset.look = this.theme;
    const query = new URLSearchParams([...this.query(), ["look", this.theme], ["part", part]]);
    const answer = await fetch(`/stepscope/still/what-if?${query}`);
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    return answer.json();
  }

  lost(error) {
    this.host.dataset.connection = "lost";
    clearTimeout(this.timer);
    this.timer = setTimeout(() => { if (this.host.isConnected) this.ask(); }, 1000);
    console.warn(`what-if: ${error.message}`);
  }

  // After the next frame what was drawn is on the screen.
  told(asked) {
    const since = this.since;
    this.since = null;
    requestAnimationFrame(() => requestAnimationFrame(() => {
      page.drawn = asked;
      page.ms = performance.now() - since;
    }));
  }

  // In the order of the page. While the slider runs ahead, the curves may miss two answers of three.
  async draw(view) {
    for (const [id, div] of this.words) this.markup(div, id, view.html[id]);
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

  markup(div, id, html) {
    div.hidden = html === undefined;
    if (html !== undefined && this.fresher(id, html)) div.innerHTML = html;
  }

  fresher(id, content) {
    const text = JSON.stringify(content);
    if (this.sent[id] === text) return false;
    this.sent[id] = text;
    return true;
  }

  watch() {
    if (live.look() !== this.theme && !this.busy) this.ask();
  }

  close() {
    clearTimeout(this.timer);
    clearInterval(this.watching);
    document.removeEventListener("pointerdown", this.outside);
    document.removeEventListener("keydown", this.escape);
    for (const chart of Object.values(this.charts)) chart.close();
  }
}

// Without https only localhost may use the clipboard: elsewhere the old way still works.
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = element("textarea", {}, text);
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

export function mount(component) {
  const host = component.parentElement.querySelector(".ss-root");
  if (!host.mount) {
    const made = (host.mount = new WhatIf(host, component.data));
    // The theme can be switched in Streamlit's menu at any time.
    made.watching = setInterval(() => made.watch(), 1000);
    made.outside = (event) => { if (!made.details.contains(event.target)) made.details.open = false; };
    made.escape = (event) => { if (event.key === "Escape") made.details.open = false; };
    document.addEventListener("pointerdown", made.outside);
    document.addEventListener("keydown", made.escape);
  }
  return () => { host.mount?.close(); host.mount = null; };
}
