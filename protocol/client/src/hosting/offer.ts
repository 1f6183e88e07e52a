/** The tools and hooks that a client offers to a session. */

import type { HookOffer, ToolOffer } from "../wire.js";
import { type Hook, hookOffers } from "./hooks.js";
import { toolOffers, type Tools } from "./tools.js";

/** The tools and hooks to offer. */
export interface Offer {
  /** The tools, by name. */
  readonly tools?: Tools | undefined;
  /** The hooks, in the order in which they are called. */
  readonly hooks?: readonly Hook[] | undefined;
}

/** Returns the fields of `open_session` that carry the offer. */
export function offers({ tools, hooks }: Offer): { tools?: ToolOffer[]; hooks?: HookOffer[] } {
  return {
    ...(tools ? { tools: toolOffers(tools) } : {}),
    ...(hooks ? { hooks: hookOffers(hooks) } : {}),
  };
}
