/**
 * A plot of series over time: a chart with axes, a legend that shows the values under the pointer, and the same numbers
 * as a table.
 *
 * @typedef {import("./series.js").Series} Series
 * @typedef {import("./series.js").Bins} Bins
 */

import { chart } from "../chart.js";
import { el } from "../dom.js";
import { put, table } from "./parts.js";
import { roundUp, total } from "./series.js";

/** Times written below a chart. */
const TICKS = 4;
/** The share of the height that zero takes, where it is a value. */
const THIN = 0.01;

/** The colours of series, by name in the style sheet; the last one is for the sum of the others. */
const COLOURS = 6;

export class Plot {
  /**
   * @param {object} about
   * @param {string} about.title
   * @param {string} about.what says what is plotted
   * @param {(value: number) => string} about.format
   * @param {(values: readonly number[]) => number | null} [about.sum] the value of a whole series; null if it has none
   * @param {number} [about.max] the upper edge, if it is fixed: zero is a value then, and drawn as a thin line
   */
  constructor({ title, what, format, sum = total, max }) {
    this.title = title;
    this.format = format;
    this.sum = sum;
    this.max = max;
    this.canvas = el("div", { class: "canvas" });
    this.legend = el("ul", { class: "legend" });
    this.when = el("p", { class: "when" });
    this.table = el("div", {});
    this.details = el("details", {}, el("summary", {}, "Table"), this.table);
    this.details.addEventListener("toggle", () => this.tabulate());
    this.body = el("div", {}, this.canvas, this.when, this.legend, this.details);
    this.said = el("p", { class: "said", hidden: true });
    this.node = el("figure", { class: "plot" }, el("figcaption", {}, el("h2", {}, title), el("p", {}, what)), this.said, this.body);
    /** @type {{ bins: Bins, series: Series[] } | null} */
    this.data = null;
  }

  /**
   * Says why there is nothing to plot.
   * @param {string} why
   */
  none(why) {
    this.said.textContent = why;
    this.said.hidden = false;
    this.body.hidden = true;
  }

  /**
   * @param {Bins} bins
   * @param {Series[]} series stacked in this order; a period without a value is NaN, and a gap
   */
  draw(bins, series) {
    this.data = { bins, series };
    if (series.every(({ values }) => values.every((value) => this.isNothing(value)))) return this.none("Nothing in this time.");
    this.said.hidden = true;
    this.body.hidden = false;
    const stacked = Array.from({ length: bins.count }, (_, at) => series.reduce((sum, { values }) => sum + values[at], 0));
    const max = this.max ?? roundUp(Math.max(...stacked));
    const named = series.map((one) => `${one.name} ${this.whole(one)}`.trim()).join(", ");
    const drawing = chart({
      label: `${this.title}: ${named}. The table below has the numbers.`,
      max,
      areas: series.map(({ values }, at) => ({ kind: `k${colour(at, series)}`, values: values.map((value) => (this.isNothing(value) ? 0 : value || max * THIN)) })),
      limits: [0.5, 1].map((share) => ({ kind: "grid", value: max * share })),
    });
    const times = Array.from({ length: TICKS }, (_, at) => el("span", {}, timeText(bins, Math.round((at * (bins.count - 1)) / (TICKS - 1))).split(",")[0]));
    this.canvas.replaceChildren(
      el("div", { class: "ys", "aria-hidden": "true" }, [1, 0.5, 0].map((share) => el("span", {}, this.format(max * share)))),
      drawing.node, el("div", { class: "xs", "aria-hidden": "true" }, times));
    drawing.node.addEventListener("pointermove", ({ clientX }) => {
      const { left, width } = drawing.node.getBoundingClientRect();
      const at = drawing.at((clientX - left) / Math.max(1, width));
      drawing.select(at);
      this.tell(at);
    });
    drawing.node.addEventListener("pointerleave", () => (drawing.select(-1), this.tell(null)));
    this.tell(null);
    this.tabulate();
  }

  /**
   * Returns true if there is nothing to draw.
   * @param {number} value
   */
  isNothing(value) {
    return Number.isNaN(value) || (value === 0 && this.max === undefined);
  }

  /** @param {number} value */
  text(value) {
    return Number.isNaN(value) ? "–" : this.format(value);
  }

  /**
   * Writes the legend, with the values of one period or of all.
   * @param {number | null} at
   */
  tell(at) {
    if (!this.data) return;
    const { bins, series } = this.data;
    this.when.textContent = at === null ? `Since ${timeText(bins, 0)}` : timeText(bins, at);
    this.legend.replaceChildren(...series.map((one, index) => el("li", {},
      el("span", { class: `swatch k${colour(index, series)}`, "aria-hidden": "true" }), el("span", { class: "of" }, one.name),
      el("b", {}, at === null ? this.whole(one) : this.text(one.values[at])))));
  }

  /** @param {Series} one */
  whole({ values }) {
    const sum = this.sum(values);
    return sum === null ? "" : this.format(sum);
  }

  /** Writes the table, if it is shown. */
  tabulate() {
    if (!this.details.open || !this.data) return;
    const { bins, series } = this.data;
    // Newest first, and without empty periods.
    const times = Array.from({ length: bins.count }, (_, index) => bins.count - 1 - index).filter((at) => !series.every(({ values }) => this.isNothing(values[at])));
    const row = (/** @type {string} */ name, /** @type {string[]} */ values) => el("tr", {}, el("th", { scope: "row" }, name), values.map((value) => el("td", {}, value)));
    const rows = times.map((at) => row(timeText(bins, at), series.map(({ values }) => this.text(values[at]))));
    put(this.table, table(this.title, ["From", ...series.map(({ name }) => name)], rows, this.sum === total ? row("Together", series.map((one) => this.whole(one))) : undefined));
  }
}

/**
 * Returns the colour of a series.
 * @param {number} at
 * @param {Series[]} series
 */
function colour(at, series) {
  return at === series.length - 1 && / more$/.test(series[at].name) ? COLOURS - 1 : at % COLOURS;
}

/**
 * Formats when a period begins, here where the reader is.
 * @param {Bins} bins
 * @param {number} at
 */
function timeText({ from, stepMs, count }, at) {
  const time = new Date(from + at * stepMs);
  const clock = time.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  return stepMs * count > 25 * 3_600_000 ? `${time.toLocaleDateString(undefined, { weekday: "short", day: "numeric" }).replace(",", "")}, ${clock}` : clock;
}
