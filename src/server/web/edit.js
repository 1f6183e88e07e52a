/** Turns a user message into a field to ask differently. What followed the original stays on its own branch. */

import { joined, split } from "./attached.js";
import { summaryChoice } from "./dialogs.js";
import { el } from "./dom.js";

/**
 * @typedef {import("./message.js").MessageEntry} MessageEntry
 * @typedef {import("reseed-protocol").Part} Part
 */

/**
 * @param {object} options
 * @param {MessageEntry} options.entry
 * @param {boolean} options.stops whether asking again stops something that is running
 * @param {number} options.waiting number of queued inputs that come back as text
 * @param {boolean} options.leaves whether something followed the message that could be summarised
 * @param {(content: Part[], leaving: import("./moves.js").Leaving) => Promise<boolean>} options.onAsk returns true if
 * the message was accepted
 * @param {() => void} options.onEnd
 */
export function messageEditor({ entry, stops, waiting, leaves, onAsk, onEnd }) {
  const { text, attached } = split(entry.content);
  const input = el("textarea", { class: "field", rows: 2, dir: "auto", "aria-label": "Ask differently" });
  input.value = text;
  const choice = leaves ? summaryChoice("Bring a summary of the answer and what followed along") : null;
  const ask = el("button", { type: "submit", class: "button primary small" }, stops ? "Stop and ask again" : "Ask again");
  const cancel = el("button", { type: "button", class: "button small", onclick: onEnd }, "Cancel");
  const back = waiting === 1 ? "the message that waits comes back to the field below" : `the ${waiting} messages that wait come back to the field below`;
  const note = stops ? `An answer is being written: asking again stops it${waiting > 0 ? `, and ${back}` : ""}.` : "";
  const form = el("form", { class: "editor", "aria-label": "Edit and ask again" },
    input, attached.length > 0 && el("p", { class: "hint" }, attached.length === 1 ? "The attachment is sent along unchanged." : `The ${attached.length} attachments are sent along unchanged.`), note && el("p", { class: "hint" }, note), choice?.node, el("div", { class: "actions" }, cancel, ask));
  const submit = async () => {
    if ((input.value.trim() === "" && attached.length === 0) || ask.disabled) return;
    ask.disabled = true;
    const taken = await onAsk(joined({ text: input.value, attached }), choice?.chosen() ?? {});
    ask.disabled = false;
    if (taken) onEnd();
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    void submit();
  });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.preventDefault();
      onEnd();
    } else if (event.key === "Enter" && event.target === input && !event.shiftKey && !event.isComposing && !matchMedia("(pointer: coarse)").matches) {
      event.preventDefault();
      void submit();
    }
  });
  const focus = () => {
    input.focus();
    input.setSelectionRange(input.value.length, input.value.length);
  };
  return { node: form, focus };
}
