// Elements and numbers. All text from the daemon becomes text nodes, never markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== undefined && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** An element with attributes, listeners (`onclick`) and children. */
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

/** An element of a drawing. */
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** A table. Columns: `{ name, number, wide, of: (row) => text or element }`. */
export function table(columns, rows, empty) {
  if (rows.length === 0) return h("p", { class: "soft" }, empty);
  const kind = (column) => (column.number ? "n" : column.wide ? "wide mono" : "");
  const head = h("tr", {}, columns.map((column) => h("th", { class: column.number ? "n" : "", scope: "col" }, column.name)));
  const line = (row) => h("tr", {}, columns.map((column) => h("td", { class: kind(column) }, column.of(row) ?? "")));
  return h("div", { class: "scroll" }, h("table", {}, h("thead", {}, head), h("tbody", {}, rows.map(line))));
}

/** A number with a unit prefix: 12.3 k. */
export function short(number) {
  const units = ["", " k", " M", " G", " T", " P"];
  let at = 0, value = number;
  while (value >= 999.5 && at < units.length - 1) {
    value /= 1000;
    at += 1;
  }
  return `${at > 0 && value < 99.95 ? value.toFixed(1) : Math.round(value)}${units[at]}`;
}

export const whole = (number) => Number(number).toLocaleString("en");
export const perSecond = (rate) => (rate === undefined ? "" : `${short(rate)}/s`);
export const bits = (rate) => (rate === undefined ? "" : `${short(8 * rate)}bit/s`);

/** Seconds as 1 d 2 h, 3 min 4 s. */
export function time(seconds) {
  const parts = [[Math.floor(seconds / 86400), "d"], [Math.floor(seconds / 3600) % 24, "h"], [Math.floor(seconds / 60) % 60, "min"], [Math.floor(seconds) % 60, "s"]];
  const first = parts.findIndex(([count]) => count > 0);
  return first < 0 ? "0 s" : parts.slice(first, first + 2).map(([count, unit]) => `${count} ${unit}`).join(" ");
}

/** A line of the last values. */
export function spark(values) {
  const most = Math.max(1, ...values);
  const points = values.map((value, at) => `${(100 * at) / Math.max(1, values.length - 1)},${30 - (28 * value) / most}`);
  return s("svg", { class: "spark", viewBox: "0 0 100 32", preserveAspectRatio: "none", "aria-hidden": "true" }, s("polyline", { points: points.join(" ") }));
}

/** A bar from 0 to 1. */
export function meter(part) {
  const width = 100 * Math.min(1, Math.max(0, part));
  return h("div", { class: "meter" }, s("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" }, s("rect", { width, height: 10 })));
}

/** Rates of counters: the differences to the values of the call before, by seconds. */
export class Rates {
  #before = new Map();
  #at = 0;

  /** Takes the counters of now, as [key, value]; returns a function from keys to rates. */
  take(counters) {
    const now = performance.now(), seconds = (now - this.#at) / 1000, before = this.#before;
    this.#before = new Map(counters);
    this.#at = now;
    return (key) => {
      const old = before.get(key), value = this.#before.get(key);
      return old === undefined || value === undefined || seconds <= 0 ? undefined : Math.max(0, value - old) / seconds;
    };
  }
}
