/**
 * Converts strategy settings to and from form fields. Pure. The server lists the strategies (`offered-strategies.js`)
 * and the protocol defines the settings (`strategy-settings.js`).
 *
 * @typedef {import("reseed-protocol").StrategySettings} StrategySettings
 * @typedef {keyof StrategySettings} SettingName
 *
 * @typedef {object} Setting
 * @property {string} label
 * @property {string} about
 * @property {"share" | "count" | "choice" | "names" | "option"} kind a `share` of 1 is entered in percent
 * @property {number} [min]
 * @property {number} [max]
 * @property {string[]} [options] the values of an `option`
 *
 * @typedef {object} Strategy
 * @property {string} name
 * @property {string} about what it does
 * @property {boolean} automatic true if it compacts automatically
 * @property {SettingName[]} settings the settings it reads, most frequently changed first
 */

import { SETTINGS } from "./strategy-settings.js";

/** @param {number} share */
const percent = (share) => Math.round(share * 1000) / 10;

/**
 * @param {SettingName} name
 * @returns {{ label: string, min?: number, max?: number, step: number | "any" }} a setting in the unit of its field
 */
export function unitOf(name) {
  const { kind, label, min, max } = SETTINGS[name];
  if (kind !== "share") return { label, min, max, step: 1 };
  return { label: label.replace("share of", "% of"), min: percent(min ?? 0), max: percent(max ?? 1), step: "any" };
}

/**
 * @param {SettingName} name
 * @param {StrategySettings} settings
 * @returns {string} the text of the setting's field; empty for the deployment's default
 */
export function fieldOf(name, settings) {
  const value = settings[name];
  if (value === undefined) return "";
  if (Array.isArray(value)) return value.join(", ");
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "string") return value;
  return SETTINGS[name].kind === "share" ? String(percent(value)) : String(value);
}

/**
 * Returns the settings updated from form fields; settings without a field stay unchanged.
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
    else if (kind === "share") all[name] = Number(text) / 100;
    else if (kind === "count") all[name] = Number(text);
    else if (kind === "choice") all[name] = text === "yes";
    else if (kind === "option") all[name] = text;
    else all[name] = text.split(/[\s,]+/).filter(Boolean);
  }
  return all;
}
