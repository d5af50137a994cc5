// The contract lab of the Kernels page: everything that can be chosen is a button in the answers.
// State for tests and for the curious: window.__stepscope.kernels = { asked, drawn, ms, query }.

// The same tag as this script's, so that a browser keeps no older one.
const { Still, element, mounted } = await import(
  new URL("./still.js" + new URL(import.meta.url).search, import.meta.url));
const page = (window.__stepscope.kernels ??= { asked: 0, drawn: 0, ms: null, query: null });

const place = (id, kind = "div", attributes = {}) => element(kind, { id: `ss-${id}`, ...attributes });
const titled = (title, ...parts) => element("section", {}, element("h4", {}, title), ...parts);

class Kernels extends Still {
  constructor(host, data) {
    super(host, data, page, "kernels");
  }

  build() {
    this.host.className = "ss-root ss-mount wi kn";
    const chips = this.chips();
    chips.append(this.link());
    this.host.replaceChildren(
      place("headline", "div", { class: "ss-html ss-headline" }), chips,
      place("slots", "div", { class: "kn-slots" }), place("message"),
      element("div", { class: "kn-halves" },
        element("section", {}, place("title", "h4"), place("bytes"),
          titled("Where each token goes", place("routes"))),
        titled("Element by element", place("elements"))),
      element("div", { class: "kn-halves kn-below" },
        titled("What was tried", place("tried")),
        titled("Why the path without the fused router works", place("ops"))),
      titled("Most symptoms point at a layer", place("stack")),
      place("notes", "p", { class: "wi-notes" }));
    this.words = this.places();
  }
}

export function mount(component) {
  return mounted(component, Kernels);
}
