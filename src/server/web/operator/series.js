/**
 * Sums over time as series for plots. Pure.
 *
 * @typedef {object} Bins equal periods, oldest first
 * @property {number} from milliseconds since 1970
 * @property {number} stepMs
 * @property {number} count
 *
 * @typedef {{ name: string, values: number[] }} Series
 */

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

/**
 * The ranges of time; `readMs` lies between two readings.
 * @type {Record<string, { title: string, step: string, stepMs: number, count: number, readMs: number }>}
 */
export const RANGES = {
  hour: { title: "Hour", step: "minute", stepMs: MINUTE_MS, count: 60, readMs: MINUTE_MS / 3 },
  day: { title: "Day", step: "hour", stepMs: HOUR_MS, count: 24, readMs: MINUTE_MS },
  week: { title: "Week", step: "hour", stepMs: HOUR_MS, count: 7 * 24, readMs: 5 * MINUTE_MS },
};

/**
 * Returns the periods of a range. The last one is the current one; they begin where the server's begin, in UTC.
 * @param {{ stepMs: number, count: number }} range
 * @param {number} now
 * @returns {Bins}
 */
export function binsOf({ stepMs, count }, now) {
  return { from: (Math.floor(now / stepMs) - count + 1) * stepMs, stepMs, count };
}

/**
 * Returns the period that a time is in, or -1.
 * @param {Bins} bins
 * @param {string} time RFC 3339
 */
export function binOf({ from, stepMs, count }, time) {
  const at = Math.floor((Date.parse(time) - from) / stepMs);
  return at >= 0 && at < count ? at : -1;
}

/**
 * Adds up a number of each item by period.
 * @template T
 * @param {Bins} bins
 * @param {readonly T[]} items
 * @param {(item: T) => string} time
 * @param {(item: T) => number} value
 */
export function summed(bins, items, time, value) {
  const sums = new Array(bins.count).fill(0);
  for (const item of items) {
    const at = binOf(bins, time(item));
    if (at >= 0) sums[at] += value(item);
  }
  return /** @type {number[]} */ (sums);
}

/**
 * Returns the largest series, and the sum of the others as one more.
 * @param {Series[]} series
 * @param {number} most
 */
export function largest(series, most) {
  const sorted = series.map((one) => ({ one, sum: total(one.values) })).filter(({ sum }) => sum > 0).sort((a, b) => b.sum - a.sum).map(({ one }) => one);
  const [others, shown] = [sorted.slice(most), sorted.slice(0, most)];
  if (others.length === 0) return shown;
  const values = others[0].values.map((_, at) => others.reduce((sum, other) => sum + other.values[at], 0));
  return [...shown, { name: `${others.length} more`, values }];
}

/**
 * Splits items by a name into series, largest first.
 * @template T
 * @param {Bins} bins
 * @param {readonly T[]} items
 * @param {(item: T) => string} name
 * @param {(item: T) => string} time
 * @param {(item: T) => number} value
 * @param {number} most
 */
export function grouped(bins, items, name, time, value, most) {
  /** @type {Map<string, T[]>} */
  const groups = new Map();
  for (const item of items) {
    const group = groups.get(name(item));
    if (group) group.push(item);
    else groups.set(name(item), [item]);
  }
  return largest([...groups].map(([key, group]) => ({ name: key, values: summed(bins, group, time, value) })), most);
}

/** @param {readonly number[]} values */
export function total(values) {
  return values.reduce((sum, value) => sum + value, 0);
}

/** The edges that a plot may have, between two powers of ten. */
const EDGES = [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10];

/**
 * Returns the smallest round number that is not smaller.
 * @param {number} value
 */
export function roundUp(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return (EDGES.find((edge) => edge * power >= value * (1 - 1e-9)) ?? 10) * power;
}
