/**
 * Renders entries and answers in progress. Each entry is rendered once, because it never changes. Its actions and its
 * name are in the line below it (`row-tools.js`).
 *
 * @typedef {import("reseed-protocol").Entry} Entry
 * @typedef {import("reseed-protocol").Part} Part
 * @typedef {Extract<Entry, { type: "message" }>} MessageEntry
 * @typedef {Extract<Entry, { type: "custom_message" }>} CustomEntry
 *
 * @typedef {object} Calls
 * @property {Map<string, import("./tool-calls.js").Made>} made the calls on the path, by `toolCallId`
 * @property {(toolCallId: string) => number | undefined} took how many milliseconds a call ran, if this page saw it
 */

import { fileOf } from "./attached.js";
import { dollars } from "./cache.js";
import { partText } from "./client.js";
import { el, number } from "./dom.js";
import { MarkdownView, markdown } from "./markdown.js";
import { callLine, resultLine } from "./tool-calls.js";
import { transformLine } from "./transform.js";
import { untagged } from "./tree.js";

/** Characters of a tool call's arguments shown while it is folded. */
const PREVIEW_CHARS = 80;

/** Characters of a message shown at once: laying out a very long line takes a second or more. */
const SAID_CHARS_MAX = 10_000;
/** Characters shown of a longer message. */
const SAID_CHARS_SHOWN = 2000;

/** @type {Record<string, string>} */
const CUTS = {
  length: "Cut off: the answer reached the output limit.",
  content_filter: "Cut off by the provider’s filter.",
};

/**
 * Returns true if the entry has a row: not every entry matters to a reader of the chat.
 * @param {Entry} entry
 */
export function hasRow(entry) {
  switch (entry.type) {
    case "message": case "compaction": case "branch_summary": case "model_change": case "thinking_level_change": case "session_info": case "label":
      return true;
    case "custom_message": return entry.display;
    case "context_transform": return transformLine(entry) !== null;
    default: return false;
  }
}

/**
 * Builds an entry's row, or returns null if it has none.
 * @param {Entry} entry
 * @param {Calls} calls
 * @param {(entryId: string) => string} preview returns the beginning of another entry's text
 * @returns {HTMLElement | null}
 */
export function entryRow(entry, calls, preview) {
  switch (entry.type) {
    case "message":
      if (entry.role === "assistant") return answer(entry);
      return entry.role === "tool" ? toolResults(entry, calls) : userMessage(entry.content, entry.entryId);
    case "custom_message": return entry.display ? customMessage(entry) : null;
    case "branch_summary":
      return el("li", { class: "message", "data-entry": entry.entryId }, fold("", [`Summary of the branch that was left${entry.hook ? `, with the hook “${entry.hook}”` : ""}`], markdown(untagged(entry.summary))));
    case "context_transform": return transform(entry);
    case "model_change": return note(entry, `The model is ${entry.model} from here on.`);
    case "thinking_level_change":
      return note(entry, entry.thinkingLevel === "default" ? "How long to think is left to the provider from here on." : `Reasoning effort: ${entry.thinkingLevel} from here on.`);
    case "session_info": return note(entry, `The chat is called “${entry.name}”.`);
    case "label": {
      const target = preview(entry.targetId);
      const what = target ? ` on “${target}”` : "";
      return note(entry, entry.label === undefined ? `Label taken away${what}` : `Label “${entry.label}”${what}`);
    }
    default: return null;
  }
}

/**
 * Builds an unobtrusive line.
 * @param {Entry} entry
 * @param {string} text
 */
function note(entry, text) {
  return el("li", { class: "note", "data-entry": entry.entryId, dir: "auto" }, text);
}

/**
 * Renders what a hook changed in the model's view.
 * @param {import("./transform.js").TransformEntry} entry
 */
function transform(entry) {
  const line = transformLine(entry);
  if (!line) return null;
  const row = note(entry, line.text);
  row.classList.add("transform");
  if (line.markdown !== null) row.replaceChildren(el("details", {}, el("summary", {}, line.text), markdown(line.markdown)));
  return row;
}

/**
 * Renders a user message verbatim: it is not parsed as Markdown.
 * @param {readonly Part[]} content
 * @param {string} [entryId]
 */
export function userMessage(content, entryId) {
  return el("li", { class: "message user", "data-entry": entryId },
    el("span", { class: "visually-hidden" }, "You: "), el("div", { class: "bubble" }, ...content.map(saidPart)));
}

/**
 * Renders a text of the user's; of a very long one only the beginning, with a button for the rest.
 * @param {string} text
 */
function saidText(text) {
  if (text.length <= SAID_CHARS_MAX) return el("div", {}, text);
  const words = document.createTextNode(`${text.slice(0, SAID_CHARS_SHOWN)}…`);
  const more = el("button", { type: "button", class: "button small", onclick: () => {
    words.data = text;
    more.remove();
  } }, `Show all ${number(text.length)} characters`);
  return el("div", {}, words, more);
}

/** @param {Part} part */
function saidPart(part) {
  const file = fileOf(part);
  if (file) return fold("file", [file.name], saidText(file.text));
  if (part.type === "text") return saidText(part.text);
  if (part.type !== "image") return null;
  if (/^data:image\/(?:png|jpeg|gif|webp);/i.test(part.url)) return el("img", { src: part.url, alt: "Picture" });
  return el("div", {}, `Picture: ${part.url}`);
}

/**
 * Renders what a client told the model in the user's place.
 * @param {CustomEntry} entry
 */
function customMessage(entry) {
  return el("li", { class: "message custom", "data-entry": entry.entryId },
    el("div", { class: "bubble" }, el("small", { class: "kind" }, entry.customType), ...entry.content.map(saidPart)));
}

/**
 * @param {MessageEntry} entry
 */
function answer(entry) {
  const parts = entry.content.map(answerPart);
  const cut = entry.incomplete ? (entry.stopReason === "cancelled" ? "Stopped here: this answer is incomplete." : "The answer broke off here.") : CUTS[entry.stopReason ?? ""];
  return el("li", { class: "message assistant", "data-entry": entry.entryId },
    el("span", { class: "visually-hidden" }, "Answer: "),
    el("div", { class: "parts" }, ...parts),
    cut && el("span", { class: "mark cut" }, cut));
}

/**
 * Describes what an answer cost.
 * @param {MessageEntry} entry
 */
export function cost({ model, usage }) {
  const words = model ? [model] : [];
  if (usage) {
    const about = usage.source === "estimated" ? "about " : "";
    words.push(`${about}${number(usage.inputTokens)} tokens in`, `${number(usage.outputTokens)} out`);
    if (usage.cachedTokens > 0) words.push(`${number(usage.cachedTokens)} cached`);
    if (usage.cacheWriteTokens) words.push(`${number(usage.cacheWriteTokens)} written to the cache`);
    if (usage.costNanoUsd !== undefined) words.push(dollars(usage.costNanoUsd));
  }
  return words.join(" · ");
}

/**
 * @param {Part} part
 * @returns {HTMLElement | null}
 */
function answerPart(part) {
  switch (part.type) {
    case "text": return part.text === "" ? null : markdown(part.text);
    case "reasoning": return part.text === "" ? null : fold("reasoning", ["Reasoning"], el("pre", { class: "plain" }, part.text));
    case "tool_call": return callLine(part);
    default: return null;
  }
}

/**
 * Returns the beginning of a call's arguments.
 * @param {string} text
 */
function preview(text) {
  return text.length > PREVIEW_CHARS ? `${text.slice(0, PREVIEW_CHARS)}…` : text;
}

/**
 * @param {MessageEntry} entry
 * @param {Calls} calls
 */
function toolResults(entry, { made, took }) {
  const lines = entry.content.map((part) => {
    if (part.type !== "tool_result") return part.type === "image" ? saidPart(part) : null;
    const call = made.get(part.toolCallId);
    const millis = took(part.toolCallId) ?? (call && Date.parse(entry.timestamp) - Date.parse(call.timestamp));
    return resultLine(part, call, millis);
  });
  return el("li", { class: "message tool", "data-entry": entry.entryId }, ...lines);
}

/**
 * @param {string} kind
 * @param {(Node | string)[]} label
 * @param {HTMLElement} content
 */
function fold(kind, label, content) {
  return el("details", { class: `fold ${kind}` }, el("summary", {}, ...label), el("div", { class: "inside", tabindex: 0 }, content));
}

/**
 * An answer in progress: new text is appended to what is already shown. Its elements match those of `answer`, so that
 * its row can become the entry's row.
 */
export class ItemView {
  /** @param {import("./client.js").Item} item */
  constructor(item) {
    this.parts = el("div", { class: "parts" });
    this.mark = el("span", { class: "mark cut", hidden: true }, "The answer broke off here. It is not stored: the model does not see it, and it is gone when this page is closed.");
    this.node = el("li", { class: "message assistant", "data-item": item.itemId },
      el("span", { class: "visually-hidden" }, "Answer: "), this.parts, this.mark);
    /** @type {{ type: string, show: (text: string) => void }[]} */
    this.views = [];
    /** @type {import("./client.js").Item | null} the displayed item */
    this.item = null;
    this.update(item);
  }

  /** @param {import("./client.js").Item} item */
  update(item) {
    if (this.item === item) return;
    this.item = item;
    item.parts.forEach((part, index) => {
      if (this.views[index]?.type !== part.type) this.views[index] = this.makePart(part, index);
      this.views[index].show(partText(part));
    });
    this.mark.hidden = !item.aborted;
    this.node.classList.toggle("void", Boolean(item.aborted));
  }

  /**
   * @param {import("./client.js").RunningPart} part
   * @param {number} index
   */
  makePart(part, index) {
    const [node, show] = runningPart(part);
    const old = this.parts.children[index];
    if (old) old.replaceWith(node);
    else this.parts.append(node);
    return { type: part.type, show };
  }
}

/**
 * Returns the element of a part in progress, and a function that shows its text so far.
 * @param {import("./client.js").RunningPart} part
 * @returns {[HTMLElement, (text: string) => void]}
 */
function runningPart(part) {
  if (part.type === "text") {
    const root = el("div", { class: "markdown" });
    const view = new MarkdownView(root);
    return [root, (text) => view.update(text)];
  }
  const text = document.createTextNode("");
  const label = document.createTextNode("");
  const grow = (/** @type {string} */ all) => {
    text.appendData(all.slice(text.length));
    label.data = ` ${preview(all)}`;
  };
  const content = el("pre", { class: "plain" }, text);
  if (part.type === "reasoning") return [fold("reasoning", ["Thinking…"], content), grow];
  return [fold("", ["Tool ", el("code", {}, part.name), label], content), grow];
}
