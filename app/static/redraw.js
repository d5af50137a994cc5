// Has a page's controls drawn again once the engine is not what they show: live.js tells of it, from
// the stream that the page has anyway.

const AGAIN_MS = 2000;  // an answer that never came is asked for again

// Streamlit sends all that is told before its next timer as one message, and runs one fragment for
// it: of the others the question would be lost. So they ask one after another, each by a timer that
// is set once the one before has asked.
const asking = new Set();

function inTurn(redraw) {
  asking.add(redraw);
  if (asking.size === 1) setTimeout(next, 0);
}

function next() {
  const [redraw] = asking;
  try { redraw?.ask(); } finally {
    asking.delete(redraw);
    if (asking.size) setTimeout(next, 0);
  }
}

class Redraw {
  constructor(component) {
    this.heard = () => this.look();
    window.addEventListener("ss-engine", this.heard);
    this.set(component);
  }

  set(component) {
    this.shown = component.data.shown;
    this.tell = component.setTriggerValue;
    this.look();
  }

  look() {
    const now = window.__stepscope?.engine;
    if (now === undefined || (now === this.wanted && this.again)) return;
    clearTimeout(this.again);
    this.again = null;
    this.wanted = now;
    if (now !== this.shown) inTurn(this);
  }

  // A paused engine sends nothing more, and nobody else would remind of it.
  ask() {
    if (this.wanted === this.shown) return;
    this.tell("changed", this.wanted);
    this.again = setTimeout(() => { this.again = null; this.look(); }, AGAIN_MS);
  }

  close() {
    clearTimeout(this.again);
    asking.delete(this);
    window.removeEventListener("ss-engine", this.heard);
  }
}

export function mount(component) {
  const host = component.parentElement.querySelector(".ss-root");
  if (host.redraw) host.redraw.set(component);
  else host.redraw = new Redraw(component);
  return () => { host.redraw?.close(); host.redraw = null; };
}
