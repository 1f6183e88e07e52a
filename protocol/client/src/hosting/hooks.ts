/** Hooks: functions of this program that the server calls at fixed extension points. */

import type { HookAnswer, HookAnswerAt, HookCall, HookCallAt, HookOffer, HookPoint } from "../wire.js";

/** The second argument of a hook. */
export interface HookRun {
  /** Aborted when the answer is no longer awaited. */
  readonly signal: AbortSignal;
  /** Reports to the user what the hook is doing, and extends the server's deadline. */
  progress(message?: string): void;
}

/** The answer of a hook; `undefined` changes nothing. */
type Returned<P extends HookPoint> = HookAnswerAt<P> | void;

/** A hook with its handler. Create it with `hook`, which types the handler by its point. */
export interface Hook extends HookOffer {
  /** Inspects the call and returns what to change. A thrown error is reported as the hook's failure. */
  run(call: HookCall, run: HookRun): HookAnswer | void | Promise<HookAnswer | void>;
}

/**
 * Returns a hook for one extension point.
 *
 * ```ts
 * hook({ point: "tool_call", name: "guard" }, (call) => (call.name === "rm" ? { block: true } : undefined));
 * ```
 */
export function hook<P extends HookPoint>(
  offer: HookOffer & { readonly point: P },
  run: (call: HookCallAt<P>, run: HookRun) => Returned<P> | Promise<Returned<P>>,
): Hook {
  // A hook is only called at its own point, by which `Hosting` looks it up.
  return { ...offer, run: (call, about) => run(call as HookCallAt<P>, about) as ReturnType<Hook["run"]> };
}

/** Returns what to offer to the server. */
export function hookOffers(hooks: readonly Hook[]): HookOffer[] {
  return hooks.map(({ run: _, ...offer }) => offer);
}

/** Returns the hook that a call is for. */
export function hookOf(hooks: readonly Hook[], call: HookCall): Hook | undefined {
  return hooks.find((hook) => {
    const isNamed = (hook.name ?? "client") === call.hook && hook.point === call.point;
    return isNamed && (call.point !== "context" || !hook.reasons || hook.reasons.includes(call.reason));
  });
}
