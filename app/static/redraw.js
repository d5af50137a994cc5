// Has a page's controls drawn again once the engine is not what they show: live.js tells of it, from
// the stream that the page has anyway.

const AGAIN_MS = 2000;  // an answer that never came is asked for again

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
    if (now === undefined || now === this.shown) return;
    const since = performance.now() - (this.asked?.at ?? -Infinity);
    if (this.asked?.now === now && since < AGAIN_MS) return;
    this.asked = { now, at: performance.now() };
    this.tell("changed", now);
  }

  close() { window.removeEventListener("ss-engine", this.heard); }
}

export function mount(component) {
  const host = component.parentElement.querySelector(".ss-root");
  if (host.redraw) host.redraw.set(component);
  else host.redraw = new Redraw(component);
  return () => { host.redraw?.close(); host.redraw = null; };
}
