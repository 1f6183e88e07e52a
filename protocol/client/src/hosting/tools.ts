/** Tools: functions of this program that the model may call. */

import type { CallId, ToolOffer, TurnId } from "../wire.js";

/** One call of a tool. */
export interface ToolRun {
  /** The id of the call. */
  readonly toolCallId: CallId;
  /** The name of the tool. */
  readonly name: string;
  /** The turn that made the call. */
  readonly turnId: TurnId;
  /** Aborted when the result is no longer awaited: at the deadline, or when the turn has ended. */
  readonly signal: AbortSignal;
  /** Reports to the user what the tool is doing, and moves the server's deadline. */
  progress(message?: string): void;
}

/** A tool with its handler. Its key in the containing object is its name. */
export interface Tool<Arguments = Record<string, unknown>> extends Omit<ToolOffer, "name"> {
  /**
   * Runs the tool. A string is the result as it is, anything else becomes JSON. A thrown error becomes a failed result,
   * which the model reads.
   */
  run(args: Arguments, call: ToolRun): unknown;
}

/** Tools by their names: 1 to 64 of `A-Za-z0-9_-`. */
export type Tools = Readonly<Record<string, Tool>>;

/**
 * Returns the tool, with arguments of the type that its schema describes. The server validates the model's arguments
 * against `parameters` before the call.
 */
export function tool<Arguments>(definition: Tool<Arguments>): Tool {
  return definition as Tool<never> as Tool;
}

/** Returns what to offer to the server. */
export function toolOffers(tools: Tools): ToolOffer[] {
  return Object.entries(tools).map(([name, { run: _, ...offer }]) => ({ name, ...offer }));
}

/** Returns a result as text for the model. */
export function outputOf(result: unknown): string {
  return typeof result === "string" ? result : (JSON.stringify(result) ?? "");
}
