// Draws the panels of a page from one event stream, and never loses a zoom.
//
// All mounts of a page share a stream; a mount owns some of its panels. State for tests and for the
// curious: window.__stepscope = { updates, seq, bytes, streams }.

const search = new URL(import.meta.url).search;
const { Chart, plotly } = await import(new URL(`./chart.js${search}`, import.meta.url));
export { Chart, plotly };

const VERSION = "1";
const shared = (window.__stepscope ??= {
  version: VERSION, updates: 0, seq: 0, bytes: 0, streams: new Map(),
});

// --- streams -------------------------------------------------------------------------------------

class Stream {
  constructor(url) {
    this.url = url;
    this.listeners = new Set();
    this.figures = {};
    this.html = {};
    if (!document.hidden) this.connect();
  }

  // A browser opens six connections to a host: one that nobody sees must not hold one of them.
  seen(visible) {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
    if (visible) this.connect();
  }

  connect() {
    this.source = new EventSource(this.url);
    this.source.onopen = () => { this.fresh = true; this.tell("open"); };
    this.source.onmessage = (event) => this.receive(event.data);
    this.source.onerror = () => {
      this.tell("lost");
      if (this.source.readyState === EventSource.CLOSED) this.retry();
    };
  }

  retry() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => { this.source?.close(); this.connect(); }, 1000);
  }

  receive(text) {
    const update = JSON.parse(text);
    const first = !this.heard;
    this.heard = true;
    // A new connection starts over: what it does not send is gone.
    if (update.seq === 1) {
      for (const kind of ["figures", "html"]) {
        for (const id of Object.keys(this[kind])) if (!(id in update[kind])) update.gone.push(id);
      }
    }
    for (const id of update.gone) { delete this.figures[id]; delete this.html[id]; }
    Object.assign(this.figures, update.figures);
    Object.assign(this.html, update.html);
    shared.updates += 1;
    shared.seq = update.seq;
    shared.bytes += text.length;
    const changed = new Set([...update.gone, ...Object.keys(update.figures), ...Object.keys(update.html)]);
    for (const listener of this.listeners) listener.update(first ? null : changed);
    if (this.html.engine !== undefined) tellEngine(this.html.engine);
  }

  tell(connection) {
    for (const listener of this.listeners) listener.connection(connection);
  }

  close() {
    clearTimeout(this.timer);
    this.source?.close();
    shared.streams.delete(this.url);
  }
}

// How the engine stands, for who must know when that changes (redraw.js). Told with each message: one
// who asked for the controls in vain asks again.
function tellEngine(now) {
  shared.engine = now;
  window.dispatchEvent(new Event("ss-engine"));
}

document.addEventListener("visibilitychange", () => {
  for (const stream of shared.streams.values()) stream.seen(!document.hidden);
});

function subscribe(url, listener) {
  let stream = shared.streams.get(url);
  if (!stream) shared.streams.set(url, (stream = new Stream(url)));
  clearTimeout(stream.ending);
  stream.listeners.add(listener);
  return stream;
}

function unsubscribe(stream, listener) {
  stream.listeners.delete(listener);
  // Reruns and page switches unmount and mount again at once: give them a moment.
  if (!stream.listeners.size) {
    stream.ending = setTimeout(() => { if (!stream.listeners.size) stream.close(); }, 500);
  }
}

// --- turns ---------------------------------------------------------------------------------------

// One chart a frame, and first the one that leads, which shows the newest step: it is on the screen
// before the others are drawn, and a hand that moves meanwhile waits for one chart at most. The words
// of a message come in one frame with the chart after that, whose numbers they share.
const waiting = new Map();
const words = new Map();
let drawing = false;

function inTurn(chart, figure, leads) {
  waiting.set(chart, { figure, leads });
  if (!drawing) drawWaiting();
}

function wordsInTurn(place, write) {
  words.set(place, write);
  if (!drawing) drawWaiting();
}

async function drawWaiting() {
  drawing = true;
  await null;  // what one message brings comes one after another: wait for all of it
  while (waiting.size || words.size) {
    const leading = [...waiting].find(([, { leads }]) => leads);
    const [chart, drawn] = leading ?? [...waiting][0] ?? [];
    waiting.delete(chart);
    if (!leading || !waiting.size) say();
    try { await chart?.show(drawn.figure); } catch (error) { reportError(error); }
    if (waiting.size || words.size) await painted();
  }
  drawing = false;
}

function say() {
  for (const [place, write] of [...words]) {
    words.delete(place);
    try { write(); } catch (error) { reportError(error); }
  }
}

// A message that a frame's callback posts is taken once that frame is on the screen; a tab that
// nobody sees has no frames.
const MOST_MS = 100;
function painted() {
  return new Promise((done) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = done;
    requestAnimationFrame(() => port2.postMessage(0));
    setTimeout(done, MOST_MS);
  });
}

// --- picks ---------------------------------------------------------------------------------------

// A click on a request shows it; the address keeps it, so that a link opens the same view. A second
// click, or an empty one, lets it go. The first request of all is number 0.
function picked() {
  const request = new URLSearchParams(location.search).get("request");
  return request ? { request } : {};
}

function pick(request) {
  const query = new URLSearchParams(location.search);
  if (`${request}` === "" || query.get("request") === `${request}`) query.delete("request");
  else query.set("request", request);
  const text = query.toString();
  history.replaceState(history.state, "", location.pathname + (text && `?${text}`) + location.hash);
  window.dispatchEvent(new Event("ss-pick"));
}

// What is under a finger may be drawn again before it is lifted: the press counts. A click without
// a press comes from the keyboard.
function listen(host) {
  if (host.listening) return;
  host.listening = true;
  const press = (event) => {
    const request = event.target.closest?.("[data-request]")?.dataset.request;
    if (request !== undefined) pick(request);
    const window = event.target.closest?.("[data-window]")?.dataset.window;
    if (window !== undefined) host.mount?.report(window);
  };
  host.addEventListener("pointerdown", press);
  host.addEventListener("click", (event) => { if (!event.detail) press(event); });
}

// --- mounts --------------------------------------------------------------------------------------

export function look() {
  const app = document.querySelector(".stApp") ?? document.body;
  const [r, g, b] = (getComputedStyle(app).backgroundColor.match(/[\d.]+/g) ?? [255, 255, 255]).map(Number);
  return 0.299 * r + 0.587 * g + 0.114 * b < 128 ? "dark" : "light";
}

class Mount {
  constructor(host) {
    this.host = host;
    this.charts = {};
    plotly().catch(() => {});  // long to parse: begin before the first figure comes
  }

  set(data) {
    this.data = data;
    const shape = JSON.stringify([data.panels, data.columns]), built = shape !== this.shape;
    if (built) this.build(shape);
    this.follow();
    // Other places for the same stream: a paused engine may send nothing more.
    if (built) this.update(null);
  }

  build(shape) {
    this.shape = shape;
    this.clear();
    this.host.innerHTML = "";
    this.host.className = "ss-root ss-mount";
    this.host.style.gridTemplateColumns = this.data.columns ?? "minmax(0, 1fr)";
    for (const panel of this.data.panels) {
      const div = document.createElement("div");
      div.id = `ss-${panel.id}`;
      div.className = `ss-panel ss-${panel.kind} ss-${panel.id}`;
      if (panel.height) div.style.height = `${panel.height}px`;
      if (panel.area) div.style.gridArea = panel.area;
      this.host.appendChild(div);
      if (panel.kind === "figure") this.charts[panel.id] = new Chart(div, (what) => this.report(what), pick);
    }
  }

  // To the server, which keeps the window for all pages and writes the address.
  report(what) { this.tell?.("window", what); }

  follow() {
    const theme = look();
    document.documentElement.dataset.look = theme;
    const query = new URLSearchParams({ ...this.data.params, ...picked(), look: theme });
    const url = `/stepscope/view/${this.data.view}?${query}`;
    if (this.stream?.url === url) return;
    if (this.stream) unsubscribe(this.stream, this);
    this.stream = subscribe(url, this);
    for (const chart of Object.values(this.charts)) chart.renew();
    this.update(null);
  }

  update(changed) {
    for (const panel of this.data.panels) {
      if (changed && !changed.has(panel.id)) continue;
      if (panel.kind === "figure") this.figure(panel);
      else if (changed) wordsInTurn(this.place(panel), () => this.markup(panel));
      else this.markup(panel);
    }
  }

  place(panel) { return this.host.querySelector(`#ss-${panel.id}`); }

  figure(panel) {
    const chart = this.charts[panel.id], figure = this.stream.figures[panel.id];
    // Until the first message the place is kept, so that nothing moves when it comes.
    if (this.stream.heard) chart.div.hidden = !figure;
    if (figure) inTurn(chart, figure, panel.leads);
  }

  markup(panel) {
    const div = this.place(panel);
    const html = this.stream.html[panel.id];
    // As with figures: before the first message the place of all but "blank" is kept.
    if (html === undefined && !this.stream.heard && panel.id !== "blank") return;
    div.hidden = html === undefined;
    const inner = div.firstElementChild;
    const atEnd = !inner || inner.scrollHeight - inner.scrollTop - inner.clientHeight < 24;
    const top = inner?.scrollTop ?? 0;
    const held = div.contains(document.activeElement) && document.activeElement.dataset.request;
    div.innerHTML = html ?? "";
    if (held) div.querySelector(`[data-request="${held}"]`)?.focus({ preventScroll: true });
    const now = div.firstElementChild;
    // Text that grows is followed at its end; a table stays where it was.
    if (now) now.scrollTop = atEnd && now.matches(".answer") ? now.scrollHeight : top;
  }

  connection(kind) { this.host.dataset.connection = kind; }

  clear() {
    for (const chart of Object.values(this.charts)) {
      waiting.delete(chart);
      chart.close();
    }
    for (const place of this.host.children) words.delete(place);
    this.charts = {};
  }

  close() {
    clearInterval(this.watch);
    window.removeEventListener("ss-pick", this.pick);
    if (this.stream) unsubscribe(this.stream, this);
    this.clear();
  }
}

export function mount(component) {
  const host = component.parentElement.querySelector(".ss-root");
  if (!host.mount) {
    host.mount = new Mount(host);
    // The theme can be switched in Streamlit's menu at any time.
    host.mount.watch = setInterval(() => host.mount?.follow(), 1000);
    host.mount.pick = () => host.mount?.follow();
    window.addEventListener("ss-pick", host.mount.pick);
    listen(host);
  }
  host.mount.tell = component.setTriggerValue;
  host.mount.set(component.data);
  return () => { host.mount?.close(); host.mount = null; };
}
