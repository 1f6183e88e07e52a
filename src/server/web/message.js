/**
 * How entries and answers in progress look. Each entry is drawn once: it never changes.
 *
 * @typedef {import("reseed-protocol").Entry} Entry
 * @typedef {import("reseed-protocol").Part} Part
 * @typedef {Extract<Entry, { type: "message" }>} MessageEntry
 */

import { compactionRow } from "./compaction.js";
import { el, iconButton, number } from "./dom.js";
import { partText } from "./fold.js";
import { MarkdownView, markdown } from "./markdown.js";

/** Characters of a tool call's arguments that are seen before it is unfolded. */
const PREVIEW_CHARS = 80;

/** @type {Record<string, string>} */
const CUTS = {
  length: "Cut off: the answer reached the output limit.",
  content_filter: "Cut off by the provider’s filter.",
};

/**
 * An entry's row, or null for what a reader of the chat need not see.
 * @param {Entry} entry
 * @param {Map<string, string>} tools names of the called tools by `callId`
 * @returns {HTMLElement | null}
 */
export function entryRow(entry, tools) {
  switch (entry.type) {
    case "message":
      if (entry.role === "assistant") return answer(entry);
      return entry.role === "tool" ? toolResults(entry, tools) : userMessage(entry.content, entry.entryId);
    case "compaction": return compactionRow(entry);
    case "branch_summary":
      return el("li", { class: "message", "data-entry": entry.entryId }, fold("", ["Summary of the branch that was left"], markdown(entry.summary)));
    case "model_change": {
      const model = "model" in entry && typeof entry.model === "string" ? entry.model : null;
      return model ? el("li", { class: "note", "data-entry": entry.entryId }, `The model is ${model} from here on.`) : null;
    }
    default: return null;
  }
}

/**
 * What the user said. Word for word: it is not read as Markdown.
 * @param {Part[]} content
 * @param {string} [entryId]
 */
export function userMessage(content, entryId) {
  const parts = content.map((part) => {
    if (part.type === "text") return el("div", {}, part.text);
    if (part.type !== "image") return null;
    if (/^data:image\/(?:png|jpeg|gif|webp);/i.test(part.url)) return el("img", { src: part.url, alt: "Picture" });
    return el("div", {}, `Picture: ${part.url}`);
  });
  return el("li", { class: "message user", "data-entry": entryId }, el("span", { class: "visually-hidden" }, "You: "), ...parts);
}

/**
 * @param {MessageEntry} entry
 */
function answer(entry) {
  const parts = entry.content.map(answerPart);
  const text = entry.content.filter((part) => part.type === "text").map(partText).join("\n\n");
  const cut = entry.incomplete ? "Stopped here: this answer is incomplete." : CUTS[entry.stopReason ?? ""];
  const copy = text && navigator.clipboard ? iconButton("copy", "Copy answer", () => void navigator.clipboard.writeText(text)) : null;
  return el("li", { class: "message assistant", "data-entry": entry.entryId },
    el("span", { class: "visually-hidden" }, "Answer: "),
    el("div", { class: "parts" }, ...parts),
    cut && el("span", { class: "mark cut" }, cut),
    text && el("div", { class: "tools-row" }, el("span", {}, cost(entry)), copy));
}

/** @param {MessageEntry} entry */
function cost({ model, usage }) {
  const words = model ? [model] : [];
  if (usage) {
    const about = usage.source === "estimated" ? "about " : "";
    words.push(`${about}${number(usage.inputTokens)} tokens in`, `${number(usage.outputTokens)} out`);
    if (usage.cachedTokens > 0) words.push(`${number(usage.cachedTokens)} cached`);
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
    case "tool_call": {
      const name = el("code", {}, part.name);
      const preview = part.arguments.length > PREVIEW_CHARS ? `${part.arguments.slice(0, PREVIEW_CHARS)}…` : part.arguments;
      return fold("", ["Tool ", name, ` ${preview}`], el("pre", { class: "plain" }, indented(part.arguments)));
    }
    default: return null;
  }
}

/**
 * @param {MessageEntry} entry
 * @param {Map<string, string>} tools
 */
function toolResults(entry, tools) {
  const folds = entry.content.map((part) => {
    if (part.type !== "tool_result") return null;
    const name = el("code", {}, tools.get(part.callId) ?? "tool");
    const label = part.isError ? ["Failed: ", name] : ["Result of ", name];
    return fold(part.isError ? "failed" : "", label, el("pre", { class: "plain" }, part.output));
  });
  return el("li", { class: "message tool", "data-entry": entry.entryId }, ...folds);
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
 * JSON made readable; what is not JSON stays as it is.
 * @param {string} text
 */
function indented(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** An answer that is still being written: text is added to what is there. */
export class ItemView {
  /** @param {import("./fold.js").Item} item */
  constructor(item) {
    this.parts = el("div", { class: "parts" });
    this.mark = el("span", { class: "mark cut", hidden: true }, "This answer broke off and is void.");
    this.node = el("li", { class: "message assistant", "data-item": item.itemId }, this.parts, this.mark);
    /** @type {{ type: string, show: (text: string) => void }[]} */
    this.views = [];
    /** @type {import("./fold.js").Item | null} what is shown */
    this.item = null;
    this.update(item);
  }

  /** @param {import("./fold.js").Item} item */
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
   * @param {Part} part
   * @param {number} index
   */
  makePart(part, index) {
    const root = el("div", { class: "markdown" });
    const node = part.type === "reasoning" ? fold("reasoning", ["Thinking…"], root) : root;
    const old = this.parts.children[index];
    if (old) old.replaceWith(node);
    else this.parts.append(node);
    if (part.type !== "reasoning") {
      const view = new MarkdownView(root);
      return { type: part.type, show: (/** @type {string} */ text) => view.update(text) };
    }
    const text = document.createTextNode("");
    root.replaceChildren(el("pre", { class: "plain" }, text));
    return { type: part.type, show: (/** @type {string} */ all) => text.appendData(all.slice(text.length)) };
  }
}
