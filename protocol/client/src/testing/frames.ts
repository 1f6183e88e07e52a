/** The example frames of the protocol, for tests that need a valid frame. */

import type { ServerFrame } from "../wire.js";
import { EXAMPLES } from "./examples.js";

/** The name of an example: `events/turn_finished.failed`, `replies/session_opened`. */
export type ExampleName = keyof typeof EXAMPLES;

/** Returns a modifiable copy of an example frame. */
export function example(name: ExampleName): ServerFrame {
  return structuredClone(EXAMPLES[name]) as unknown as ServerFrame;
}

/** Returns a copy of the payload of an example with this type. */
export function payload<T extends ServerFrame["type"]>(name: ExampleName, type: T): PayloadOfFrame<T> {
  const frame = example(name);
  if (frame.type !== type) throw new Error(`the example ${name} is a ${frame.type}, not a ${type}`);
  return frame.payload as PayloadOfFrame<T>;
}

/** The payload of a frame from the server. */
type PayloadOfFrame<T extends ServerFrame["type"]> = NonNullable<Extract<ServerFrame, { type: T }>["payload"]>;
