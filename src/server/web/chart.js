/**
 * A small chart in SVG: stacked areas over numbered points, with limits, marks and a cursor. The page's style sheet
 * gives each kind its colour.
 *
 * @typedef {object} Area
 * @property {string} kind names its colour
 * @property {number[]} values one per point; areas are stacked in this order
 */

/** The coordinates of the drawing; it is stretched to the width that there is. */
const WIDTH = 1000;
const HEIGHT = 240;

const SVG = "http://www.w3.org/2000/svg";

/**
 * @param {string} tag
 * @param {Record<string, string | number>} attributes
 */
function shape(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  return element;
}

/**
 * Draws a chart.
 * @param {object} data
 * @param {string} data.label describes it to a screen reader
 * @param {number} data.max the value at the upper edge
 * @param {Area[]} data.areas
 * @param {{ kind: string, value: number }[]} [data.limits] horizontal lines
 * @param {{ kind: string, at: number }[]} [data.marks] vertical lines before a point
 * @returns {{ node: SVGElement, select: (at: number) => void, at: (share: number) => number }} `select` moves the
 * cursor to a point, `at` returns the point at a share of the width
 */
export function chart({ label, max, areas, limits = [], marks = [] }) {
  const count = Math.max(1, areas[0]?.values.length ?? 0);
  const x = (/** @type {number} */ at) => +((at / count) * WIDTH).toFixed(1);
  const y = (/** @type {number} */ value) => +(HEIGHT - (Math.min(value, max) / Math.max(1, max)) * HEIGHT).toFixed(1);
  const node = /** @type {SVGElement} */ (shape("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label }));
  const below = Array.from({ length: count }, () => 0);
  for (const { kind, values } of areas) {
    const floor = below.map((value, at) => `L${x(at + 1)} ${y(value)}L${x(at)} ${y(value)}`).reverse().join("");
    values.forEach((value, at) => (below[at] += value));
    const roof = below.map((value, at) => `L${x(at)} ${y(value)}L${x(at + 1)} ${y(value)}`).join("");
    node.append(shape("path", { class: `area ${kind}`, d: `M${roof.slice(1)}${floor}Z` }));
  }
  for (const { kind, value } of limits) node.append(shape("path", { class: `limit ${kind}`, d: `M0 ${y(value)}H${WIDTH}` }));
  for (const { kind, at } of marks) node.append(shape("path", { class: `mark ${kind}`, d: `M${x(at)} 0V${HEIGHT}` }));
  const cursor = shape("path", { class: "cursor" });
  node.append(cursor);
  return {
    node,
    select: (at) => cursor.setAttribute("d", `M${x(at + 0.5)} 0V${HEIGHT}`),
    at: (share) => Math.max(0, Math.min(count - 1, Math.floor(share * count))),
  };
}
