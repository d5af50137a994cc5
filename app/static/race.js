// Replays a race that is drawn: what lies right of an instant is cut away, frame by frame, in this
// browser alone. The chart says how (`layout.meta.race`): end_s, and for every note and line the
// instant from which it is shown. State for tests and for the curious: window.__stepscope.race.

const CHART = "#ss-race";
const SPEEDS = [0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8];
const FILLED_S = 8;  // a replay takes about as long, unless somebody chooses another speed
const LOOK_MS = 250;
const told = { at: null, playing: false, speed: 1, frames: 0, shown: null };

const element = (tag, given = {}, ...inside) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) made.setAttribute(name, value);
  made.append(...inside);
  return made;
};
const seconds = (s, end) => `${s.toFixed(end < 1 ? 3 : 2)} s`;

class Player {
  constructor() {
    this.at = null;  // null: all of it
    this.playing = false;
    this.watched = new Set();
    this.bar = element("div", { class: "ss-replay-bar" });
    this.build();
  }

  // Reruns of the page take the bar away and bring it back: a replay goes on.
  attach(host) {
    host.replaceChildren(this.bar);
    this.look = setInterval(() => this.find(), LOOK_MS);
    this.find();
    if (this.playing) this.play();
  }

  detach() {
    clearInterval(this.look);
    cancelAnimationFrame(this.frame);
    this.bar.remove();
  }

  build() {
    this.button = element("button", { type: "button" }, "▶ Replay");
    this.range = element("input", {
      type: "range", min: 0, max: 1000, value: 1000, "aria-label": "Instant of the replay" });
    this.speeds = element("select", { "aria-label": "Speed of the replay" },
      ...SPEEDS.map((s) => element("option", { value: s }, `${s}×`)));
    this.time = element("output", { class: "time" });
    this.score = element("output", { class: "score" });
    this.bar.hidden = true;
    this.bar.replaceChildren(this.button, this.range, this.time, this.speeds, this.score);
    this.button.addEventListener("click", () => (this.playing ? this.pause() : this.play()));
    this.range.addEventListener("input", () => {
      const wanted = (this.range.value / 1000) * this.race.end_s;  // pausing puts it back
      this.pause();
      this.show(wanted);
    });
    this.speeds.addEventListener("change", () => { told.speed = this.speed = +this.speeds.value; });
  }

  // The chart comes and goes with the page's own mounts.
  find() {
    if (window.__stepscope) window.__stepscope.race = told;  // live.js makes it
    const chart = document.querySelector(CHART);
    const drawn = chart?.layout?.meta?.race && !chart.hidden;
    this.bar.hidden = !drawn || !this.ready(chart.layout.meta.race);
    if (!drawn) { this.chart = null; return; }
    if (chart !== this.chart) {
      this.chart = chart;
      this.now = element("div", { class: "ss-now" });
      chart.append(this.now);
      if (!chart.replayed) chart.on("plotly_afterplot", () => this.drawn());
      chart.replayed = true;
    }
    this.drawn();
  }

  ready(race) { return !race.recording && race.legs.some((leg) => leg.finish_s != null); }

  // Plotly has put back what the replay had cut away.
  drawn() {
    const race = this.chart?.layout?.meta?.race;
    if (!race || !this.chart._fullLayout) return;
    if (race.recording) this.watched.add(race.race);
    const other = race.race !== this.race?.race || race.recording !== this.race?.recording;
    this.race = race;
    if (other) this.begin(race);
    this.apply();
  }

  begin(race) {
    this.pause();
    this.at = null;
    const wanted = race.end_s / FILLED_S;
    const near = (a, b) => (Math.abs(Math.log(a / wanted)) <= Math.abs(Math.log(b / wanted)) ? a : b);
    told.speed = this.speed = wanted > 0 ? SPEEDS.reduce(near) : 1;
    this.speeds.value = this.speed;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    // Who saw both sides one after the other wants to see them side by side.
    if (this.ready(race) && this.watched.delete(race.race) && !still) this.play();
  }

  play() {
    if (this.at == null || this.at >= this.race.end_s) this.at = 0;
    this.playing = true;
    this.last = null;
    this.frame = requestAnimationFrame((now) => this.turn(now));
  }

  turn(now) {
    if (!this.playing || !this.bar.isConnected) return;
    const passed = this.last == null ? 0 : (now - this.last) / 1000;
    this.last = now;
    told.frames += 1;
    const at = this.at + passed * this.speed;
    if (at >= this.race.end_s) { this.pause(); this.show(null); return; }
    this.show(at);
    this.frame = requestAnimationFrame((next) => this.turn(next));
  }

  pause() {
    cancelAnimationFrame(this.frame);
    this.playing = false;
    this.apply();
  }

  show(at) {
    this.at = at != null && at >= this.race.end_s ? null : at;
    this.apply();
  }

  apply() {
    const race = this.race;
    this.button.textContent = this.playing ? "❚❚ Pause" : this.at == null ? "▶ Replay" : "▶ Play";
    if (!race) return;
    const at = this.at ?? race.end_s;
    this.cut(at);
    this.range.value = Math.round((1000 * at) / (race.end_s || 1));
    this.time.textContent = `${seconds(at, race.end_s)} of ${seconds(race.end_s, race.end_s)}`;
    this.score.textContent = race.legs.map((leg) => this.answered(leg, at)).join(" · ");
    Object.assign(told, { at: this.at, playing: this.playing, shown: at });
  }

  answered(leg, at) {
    if (leg.finish_s != null && at >= leg.finish_s) return `${leg.mode} done`;
    return `${leg.mode} ${leg.answered_s.filter((t) => t <= at).length} of ${leg.requests}`;
  }

  // Plotly clips each panel to a rectangle: it is made as wide as the replay has come.
  cut(at) {
    const chart = this.chart;
    const full = chart?._fullLayout;
    if (!full?.xaxis?._length) return;
    const whole = this.at == null;
    const { _offset: left, _length: length } = full.xaxis;
    const x = Math.min(Math.max(full.xaxis.d2p(at), 0), length);
    for (const rect of chart.querySelectorAll("clipPath.plotclip rect")) {
      rect.setAttribute("width", whole ? length : x);
    }
    const { t: top } = full._size;
    Object.assign(this.now.style, { left: `${left + x}px`, top: `${top}px`, height: `${full._size.h}px` });
    this.now.hidden = whole;
    this.marks(".annotation", this.race.shown.annotations, at);
    this.marks(".shapelayer path", this.race.shown.shapes, at);
  }

  marks(selector, instants, at) {
    for (const mark of this.chart.querySelectorAll(selector)) {
      const from = instants[+(mark.dataset.index ?? mark.getAttribute("data-index"))];
      mark.style.visibility = from != null && from > at + 1e-9 ? "hidden" : "";
    }
  }
}

let player;

export function mount(component) {
  player ??= new Player();
  player.attach(component.parentElement.querySelector(".ss-root"));
  return () => player.detach();
}
