/** The part of the fold about queued inputs. Each input is added once and removed once. */

import type { Event, QueueItem } from "../wire.js";

/** A queue event. */
export type QueueEvent = Extract<Event, { type: `queue_${string}` }>;

/** Returns the queue after an event. */
export function changeQueue(queue: readonly QueueItem[], event: QueueEvent): readonly QueueItem[] {
  switch (event.type) {
    case "queue_item_added": {
      const { position, item } = event.payload;
      return [...queue.slice(0, position), item, ...queue.slice(position)];
    }
    case "queue_item_removed":
      return queue.filter((item) => item.commandId !== event.payload.commandId);
    case "queue_reordered": {
      const { order } = event.payload;
      return [...queue].sort((one, other) => order.indexOf(one.commandId) - order.indexOf(other.commandId));
    }
    case "queue_released":
      return queue.map(({ after: _, ...item }) => item);
  }
}
