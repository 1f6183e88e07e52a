/** Reads metrics in Prometheus' text format. Pure. */

/**
 * @typedef {{ labels: Record<string, string>, value: number }} Sample
 * @typedef {Map<string, Sample[]>} Metrics the samples of each metric, by its name
 */

/**
 * @param {string} text
 * @returns {Metrics}
 */
export function parseMetrics(text) {
  /** @type {Metrics} */
  const metrics = new Map();
  for (const line of text.split("\n")) {
    const found = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!found) continue;
    const [, name, inside = "", value] = found;
    const labels = Object.fromEntries([...inside.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, key, text]) => [key, text.replace(/\\(.)/g, (_, one) => (one === "n" ? "\n" : one))]));
    metrics.set(name, [...(metrics.get(name) ?? []), { labels, value: Number(value) }]);
  }
  return metrics;
}

/**
 * Adds up the samples of a metric that have these labels.
 * @param {Metrics} metrics
 * @param {string} name
 * @param {Record<string, string>} [labels]
 */
export function sumOf(metrics, name, labels = {}) {
  const wanted = Object.entries(labels);
  return (metrics.get(name) ?? []).filter((sample) => wanted.every(([key, value]) => sample.labels[key] === value)).reduce((sum, { value }) => sum + value, 0);
}

/**
 * Returns the hooks that were called since the server started, by kind and point.
 *
 * @typedef {{ kind: string, point: string, calls: number, outcomes: Record<string, number> }} Calls
 * @typedef {Calls & { meanMs: number | null }} Hook
 * @param {Metrics} metrics
 */
export function hooksOf(metrics) {
  /** @type {Map<string, Hook>} */
  const hooks = new Map();
  for (const { labels: { kind, point, outcome }, value } of metrics.get("reseed_hook_calls_total") ?? []) {
    if (value === 0) continue;
    const count = sumOf(metrics, "reseed_hook_duration_seconds_count", { kind, point });
    const meanMs = count > 0 ? (sumOf(metrics, "reseed_hook_duration_seconds_sum", { kind, point }) / count) * 1000 : null;
    const hook = hooks.get(`${kind} ${point}`) ?? { kind, point, outcomes: {}, calls: 0, meanMs };
    hook.outcomes[outcome] = value;
    hook.calls += value;
    hooks.set(`${kind} ${point}`, hook);
  }
  return [...hooks.values()];
}
