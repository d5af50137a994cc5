// The controls of the What-if page: each is a node, and a function that shows a value in it.

const ARROWS = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 };

const { element } = await import(
  new URL("./still.js" + new URL(import.meta.url).search, import.meta.url));

function field(control, input) {
  const label = control.label ? [element("span", {}, control.label)] : [];
  const unit = control.unit ? [element("em", {}, control.unit)] : [];
  const box = element("label", { class: `wi-field wi-${control.key}`, title: control.help });
  box.append(...label, input, ...unit);
  return box;
}

function select(control, change) {
  const options = control.options.map(([value, text]) => element("option", { value }, text));
  const input = element("select", { "aria-label": control.name }, ...options);
  input.addEventListener("change", () => change(input.value));
  return { node: field(control, input), show: (value) => { input.value = value; } };
}

function number(control, change) {
  const list = `wi-list-${control.key}`;
  const input = element("input", {
    type: "text", inputmode: "decimal", "aria-label": control.name, autocomplete: "off",
    placeholder: control.placeholder, list: control.options.length ? list : null });
  // Typing asks at once, leaving the box also writes the address.
  input.addEventListener("input", () => change(input.value.trim(), false));
  input.addEventListener("change", () => change(input.value.trim()));
  const node = field(control, input);
  const offered = control.options.map(([value, text]) => element("option", { value }, text));
  if (offered.length) node.append(element("datalist", { id: list }, ...offered));
  return { node, show: (value) => { if (input !== document.activeElement) input.value = value; } };
}

function segments(control, change) {
  const buttons = control.options.map(([value, text]) => {
    const button = element("button", { type: "button", role: "radio" }, text);
    button.addEventListener("click", () => change(value));
    return [value, button];
  });
  const node = element("div", { class: "wi-segments", role: "radiogroup", "aria-label": control.name },
    ...buttons.map(([, button]) => button));
  const show = (value) => {
    for (const [own, button] of buttons) button.setAttribute("aria-checked", own === value);
  };
  return { node, show };
}

function toggles(control, change) {
  let chosen = [];
  const buttons = control.options.map(([value, text]) => {
    const button = element("button", { type: "button", class: "wi-toggle" }, text);
    button.addEventListener("click", () => {
      const on = new Set(chosen);
      if (!on.delete(value)) on.add(value);
      change(control.options.map(([own]) => own).filter((own) => on.has(own)).join(","));
    });
    return [value, button];
  });
  const node = element("div", { class: "wi-toggles", role: "group", "aria-label": control.name },
    element("span", {}, control.label), ...buttons.map(([, button]) => button));
  const show = (value) => {
    chosen = value.split(",");
    for (const [own, button] of buttons) button.setAttribute("aria-pressed", chosen.includes(own));
  };
  return { node, show };
}

// The slider is logarithmic and its batch a whole number; arrows go one batch or a quarter octave.
function slider(control, change) {
  const [low, high] = control.range;
  const input = element("input", {
    type: "range", min: Math.log2(low), max: Math.log2(high), step: "any",
    "aria-label": control.name });
  let batch = low;
  input.addEventListener("input", () => {
    batch = Math.round(2 ** input.valueAsNumber);
    change(String(batch), false);
  });
  input.addEventListener("change", () => change(String(batch)));
  input.addEventListener("keydown", (event) => {
    const way = ARROWS[event.key];
    if (!way) return;
    event.preventDefault();
    const next = Math.round(batch * 2 ** (way / 4));
    batch = Math.min(high, Math.max(low, next === batch ? batch + way : next));
    change(String(batch));
  });
  const scale = element("div", { class: "wi-scale", id: "ss-scale" });
  const node = element("div", { class: "wi-slider" }, input, scale);
  const show = (value) => {
    batch = Number(value) || low;
    input.value = Math.log2(batch);
    input.setAttribute("aria-valuetext", `batch ${value}`);
  };
  return { node, show };
}

export const KINDS = { select, number, segments, toggles, slider };
