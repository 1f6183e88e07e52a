/** The queue while a turn runs: each waiting input with its position and its actions. */

import { el, icon, iconButton } from "./dom.js";
import { userMessage } from "./message.js";

/**
 * @typedef {import("reseed-protocol").QueueItem} QueueItem
 * @typedef {import("./moves.js").Moves} Moves
 */

/**
 * Returns true if people should see the queued input.
 * @param {QueueItem} item
 */
export function isShown({ custom }) {
  return !custom || custom.display;
}

/**
 * Builds the row of a queued input.
 * @param {QueueItem} item
 * @param {readonly QueueItem[]} queue
 * @param {object} options
 * @param {Moves} options.moves
 * @param {boolean} options.mayEdit
 * @param {boolean} options.maySteer
 */
export function queueRow(item, queue, { moves, mayEdit, maySteer }) {
  // Steering inputs come before the others; each kind keeps its own order.
  const peers = queue.filter((other) => Boolean(other.steer) === Boolean(item.steer));
  const at = peers.indexOf(item);
  const move = (/** @type {"up" | "down"} */ way, /** @type {string} */ label, /** @type {-1 | 1} */ by, /** @type {boolean} */ may) => {
    const button = iconButton(way, label, () => void moves.shift(item, by));
    button.disabled = !may;
    return button;
  };
  const row = userMessage(item.content);
  row.classList.add("waiting");
  row.dataset.queued = item.commandId;
  const where = item.custom ? "A note that waits" : item.steer ? "Goes with the next request to the model" : peers.length > 1 ? `Waiting, ${at + 1} of ${peers.length}` : "Waiting for the answer";
  row.append(el("footer", { class: "tools-row" },
    el("span", { class: "mark" }, where),
    mayEdit && el("span", { class: "row-actions" },
      maySteer && !item.steer && !item.custom && el("button", { type: "button", class: "button small steer", title: "Add it to the answer that is being written", onclick: () => void moves.steer(item) }, icon("now"), "Send now"),
      peers.length > 1 && move("up", "Send earlier", -1, at > 0),
      peers.length > 1 && move("down", "Send later", 1, at < peers.length - 1),
      iconButton("close", "Take it back", () => void moves.remove(item)))));
  return row;
}
