// A page that no run stands behind: its choices live in the address, its answers come from one
// request each. While a person goes on choosing one request follows the other, and only what
// changed is drawn again.

// The same tag as this script's, so that a browser keeps no older one.
const live = await import(new URL("./live.js" + new URL(import.meta.url).search, import.meta.url));

export class Still {
  // page: what tests and the curious read, and the query to which a person returns. view: its name.
  constructor(host, data, page, view) {
    Object.assign(this, { host, data, page, view, sent: {}, charts: {} });
    this.build();
    this.host.addEventListener("click", (event) => this.clicked(event));
    this.state = this.read();
    this.show();
    this.save();
    this.ask();
  }

  // Places for words: every element with an id of ours that is no chart and not asked apart.
  places(...apart) {
    return [...this.host.querySelectorAll("[id^=ss-]")]
      .map((div) => [div.id.slice(3), div])
      .filter(([id, div]) => !(id in this.charts) && !apart.includes(div));
  }

  // Rows of tables, cells and other buttons in the answers carry the choice that they stand for.
  clicked(event) {
    const asked = event.target.closest("[data-set]");
    if (asked) this.change(Object.fromEntries(new URLSearchParams(asked.dataset.set)));
    if (event.target.closest("[data-copy]")) copy(event.target.closest("[data-copy]").dataset.copy);
  }

  // --- state and address ---

  read() {
    const given = new URLSearchParams(location.search);
    const known = Object.keys(this.data.defaults).filter((key) => given.has(key));
    const from = known.length ? given : new URLSearchParams(this.page.query ?? "");
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
    this.page.query = own.join("&").replaceAll("%2C", ",");
    const others = [...new URLSearchParams(location.search)].filter(([key]) =>
      !(key in this.data.defaults));
    const rest = others.length ? `&${new URLSearchParams(others)}` : "";
    history.replaceState(history.state, "", `${location.pathname}?${this.page.query}${rest}`);
  }

  change(changes, done = true) {
    Object.assign(this.state, changes);
    this.show();
    if (done) this.save();
    this.ask();
  }

  // --- presets: one click makes a whole state ---

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

  // What a preset does not name returns to its default; what is kept stays as it was chosen.
  fresh() {
    const kept = Object.fromEntries(this.data.keep.map((key) => [key, this.state[key]]));
    return { ...this.data.defaults, ...kept };
  }

  show() {
    for (const [preset, chip] of this.presets) {
      const wanted = { ...this.fresh(), ...preset.set };
      const on = Object.entries(wanted).every(([key, value]) =>
        this.data.loose?.includes(key) || this.state[key] === value);
      chip.setAttribute("aria-pressed", on);
    }
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

  // --- answers ---

  // One request at a time: what was chosen meanwhile is asked next, what lay between never.
  async ask() {
    this.page.asked += 1;
    this.since ??= performance.now();
    if (this.busy) { this.again = true; return; }
    this.busy = true;
    do {
      this.again = false;
      const asked = this.page.asked;
      try {
        await this.draw(await this.fetch("step"));
        this.host.dataset.connection = "open";
        if (!this.again) this.told(asked);
        if (!this.again) await this.rest();
      } catch (error) {
        this.lost(error);
      }
    } while (this.again && this.host.isConnected);
    this.busy = false;
  }

  // What a page asks for when nothing else waits.
  async rest() {}

  async fetch(part) {
    this.theme = live.look();
    document.documentElement.dataset.look = this.theme;
    const query = new URLSearchParams([...this.query(), ["look", this.theme], ["part", part]]);
    const answer = await fetch(`/stepscope/still/${this.view}?${query}`);
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    return answer.json();
  }

  lost(error) {
    this.host.dataset.connection = "lost";
    clearTimeout(this.timer);
    this.timer = setTimeout(() => { if (this.host.isConnected) this.ask(); }, 1000);
    console.warn(`${this.view}: ${error.message}`);
  }

  // After the next frame what was drawn is on the screen.
  told(asked) {
    const since = this.since;
    this.since = null;
    requestAnimationFrame(() => requestAnimationFrame(() => {
      this.page.drawn = asked;
      this.page.ms = performance.now() - since;
    }));
  }

  async draw(view) {
    for (const [id, div] of this.words) this.markup(div, id, view.html[id]);
  }

  // A button that is drawn anew keeps the keyboard.
  markup(div, id, html) {
    div.hidden = html === undefined;
    if (html === undefined || !this.fresher(id, html)) return;
    const held = div.contains(document.activeElement) ? document.activeElement.dataset.set : null;
    div.innerHTML = html;
    if (held) div.querySelector(`[data-set="${CSS.escape(held)}"]`)?.focus({ preventScroll: true });
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
    for (const chart of Object.values(this.charts)) chart.close();
  }
}

// The page of a component, made once; the theme can be switched in Streamlit's menu at any time.
export function mounted(component, Page) {
  const host = component.parentElement.querySelector(".ss-root");
  if (!host.mount) {
    const made = (host.mount = new Page(host, component.data));
    made.watching = setInterval(() => made.watch(), 1000);
  }
  return () => { host.mount?.close(); host.mount = null; };
}

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(name, "");
    else if (value !== null && value !== false && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// Without https only localhost may use the clipboard: elsewhere the old way still works.
export async function copy(text) {
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
