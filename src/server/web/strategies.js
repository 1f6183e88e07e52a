/**
 * The strategies that a session may have, and which of their settings matter to each. Pure; the server knows the
 * defaults and says what it does not allow.
 *
 * @typedef {import("reseed-protocol").StrategySettings} StrategySettings
 * @typedef {keyof StrategySettings} SettingName
 *
 * @typedef {object} Setting
 * @property {string} label
 * @property {"percent" | "count" | "choice" | "names" | "option"} kind `percent` stands for a share of 1
 * @property {string[]} [options] what an `option` may be
 *
 * @typedef {object} Strategy
 * @property {string} name
 * @property {string} does
 * @property {SettingName[]} settings
 */

/** @type {Record<SettingName, Setting>} */
export const SETTINGS = {
  threshold: { label: "Compact above, % of the window", kind: "percent" },
  target: { label: "Get down to, % of the window", kind: "percent" },
  background: { label: "Prepare from, % of the way there", kind: "percent" },
  minGain: { label: "Save at least, % of the request", kind: "percent" },
  reserveTokens: { label: "Keep free for the answer, tokens", kind: "count" },
  keepRecentTokens: { label: "Keep word for word, newest tokens", kind: "count" },
  keepTurns: { label: "Keep word for word, newest questions with answers", kind: "count" },
  keepToolResults: { label: "Never clear, newest tool results", kind: "count" },
  summarise: { label: "Summarise what is taken out", kind: "choice" },
  steps: { label: "Strategies in order, gentle to drastic", kind: "names" },
  summaryKind: { label: "What summaries keep first, by the kind of chat", kind: "option", options: ["auto", "chat", "code", "debugging", "research"] },
};

/** @type {Strategy[]} */
export const STRATEGIES = [
  { name: "threshold", does: "Summarises the older part when the window is nearly full.", settings: ["threshold", "target", "background", "keepRecentTokens", "summaryKind"] },
  { name: "sliding_window", does: "Keeps the newest questions and answers word for word and folds older ones into a summary.", settings: ["keepTurns", "background", "threshold"] },
  { name: "tool_results", does: "Clears old tool results as soon as that makes room worth it; then as threshold.", settings: ["threshold", "keepToolResults", "minGain"] },
  { name: "importance", does: "Takes out what matters least.", settings: ["threshold", "target", "summarise", "keepRecentTokens"] },
  { name: "truncate", does: "Leaves out the oldest questions and answers, without asking the model.", settings: ["threshold", "target"] },
  { name: "pipeline", does: "Several of these in order, gentle to drastic.", settings: ["steps", "threshold", "target", "keepTurns", "keepToolResults"] },
  { name: "manual", does: "Off: never compacts by itself, also not when the window is full.", settings: ["keepRecentTokens"] },
];

/**
 * @param {SettingName} name
 * @param {StrategySettings} settings
 * @returns {string} what stands in the setting's field; empty for the deployment's
 */
export function fieldOf(name, settings) {
  const value = settings[name];
  if (value === undefined) return "";
  if (Array.isArray(value)) return value.join(", ");
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "string") return value;
  return SETTINGS[name].kind === "percent" ? String(Math.round(value * 1000) / 10) : String(value);
}

/**
 * The settings with what stands in the fields of some of them; those without a field stay.
 * @param {StrategySettings} settings
 * @param {[SettingName, string][]} fields
 * @returns {StrategySettings}
 */
export function withFields(settings, fields) {
  /** @type {Record<string, unknown>} */
  const all = { ...settings };
  for (const [name, field] of fields) {
    const text = field.trim();
    const { kind } = SETTINGS[name];
    if (text === "") delete all[name];
    else if (kind === "percent") all[name] = Number(text) / 100;
    else if (kind === "count") all[name] = Number(text);
    else if (kind === "choice") all[name] = text === "yes";
    else if (kind === "option") all[name] = text;
    else all[name] = text.split(/[\s,]+/).filter(Boolean);
  }
  return all;
}
