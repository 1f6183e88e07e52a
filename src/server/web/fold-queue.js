/**
 * What waits, as a pure fold: `changeQueue` applies one event. Each input is added once and removed once.
 *
 * @typedef {import("reseed-protocol").QueueItem} QueueItem
 * @typedef {Extract<import("reseed-protocol").Event, { type: `queue_${string}` }>} QueueEvent
 */

/**
 * @param {QueueItem[]} queue
 * @param {QueueEvent} event
 * @returns {QueueItem[]}
 */
export function changeQueue(queue, event) {
  switch (event.type) {
    case "queue_item_added": return queue.toSpliced(event.payload.position, 0, event.payload.item);
    case "queue_item_removed": return queue.filter((item) => item.commandId !== event.payload.commandId);
    case "queue_reordered": {
      const { order } = event.payload;
      return queue.toSorted((one, other) => order.indexOf(one.commandId) - order.indexOf(other.commandId));
    }
    case "queue_released": return queue.map(({ after: _, ...item }) => item);
  }
}
