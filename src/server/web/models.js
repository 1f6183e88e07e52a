/**
 * The choice of a model, with what is known of each.
 *
 * @typedef {import("reseed-protocol").Models} Models
 * @typedef {import("reseed-protocol").ModelItem} ModelItem
 */

import { el, number } from "./dom.js";

/** Nanodollars per dollar. */
const NANO = 1e9;

/** @param {number} nano */
const price = (nano) => `$${(nano / NANO).toLocaleString("en-US", { maximumFractionDigits: 6 })}`;

/**
 * Describes what is known of a model.
 * @param {ModelItem} model
 */
export function factsOf({ windowTokens, price: prices, tools, images }) {
  return [
    windowTokens !== undefined && `${number(windowTokens)} tokens`,
    prices && `${price(prices.inputNanoUsd)} in, ${price(prices.outputNanoUsd)} out for a million tokens`,
    tools === false && "no tools",
    images === false && "no pictures",
    images === true && "takes pictures",
  ].filter(Boolean).join(" · ");
}

/**
 * Builds the field for a model, with what is known of the chosen one below it.
 * @param {Models | null} models those that a chat may use, as far as they are known
 * @param {string} chosen
 */
export function modelField(models, chosen) {
  const items = models?.items ?? [];
  const names = [...new Set([chosen, ...items.map(({ id }) => id)])].filter(Boolean);
  // A closed list gets a select; where other names are allowed, a text field.
  const field = models && !models.others
    ? el("select", { class: "field", id: "chat-model", name: "model" }, ...names.map((name) => el("option", { value: name }, name)))
    : el("input", { class: "field", id: "chat-model", name: "model", list: "chat-models", autocomplete: "off", required: true, spellcheck: false });
  const facts = el("p", { class: "hint" });
  const show = () => {
    const found = items.find(({ id }) => id === field.value.trim());
    facts.textContent = found ? factsOf(found) : "";
    facts.hidden = facts.textContent === "";
  };
  field.value = chosen;
  field.addEventListener("input", show);
  show();
  return { field, nodes: [field, el("datalist", { id: "chat-models" }, ...names.map((name) => el("option", { value: name }))), facts] };
}
