/** Tools: functions of this program that the model may call. */

import type { CallId, ToolOffer, TurnId } from "../wire.js";

/** One call of a tool. */
export interface ToolRun {
  /** The call. */
  readonly toolCallId: CallId;
  /** The tool. */
  readonly name: string;
  /** The turn that made it. */
  readonly turnId: TurnId;
  /** Aborted when nobody waits for the result any more: at the deadline, or when the turn has ended. */
  readonly signal: AbortSignal;
  /** Tells the user what the tool is doing, and the server to wait longer: it moves the deadline. */
  progress(message?: string): void;
}

/** A tool with its handler. The object that holds it gives it its name. */
export interface Tool<Arguments = Record<string, unknown>> extends Omit<ToolOffer, "name"> {
  /**
   * Does the work. A text is the result as it is, anything else becomes JSON; an error that is thrown is a failed
   * result, which the model reads.
   */
  run(args: Arguments, call: ToolRun): unknown;
}

/** Tools by their names: 1 to 64 of `A-Za-z0-9_-`. */
export type Tools = Readonly<Record<string, Tool>>;

/**
 * Returns the tool, with arguments of the type that its schema describes. The server checks the model's arguments
 * against `parameters` before it calls.
 */
export function tool<Arguments>(definition: Tool<Arguments>): Tool {
  return definition as Tool<never> as Tool;
}

/** Returns what is offered to the server. */
export function toolOffers(tools: Tools): ToolOffer[] {
  return Object.entries(tools).map(([name, { run: _, ...offer }]) => ({ name, ...offer }));
}

/** Returns a result as text for the model. */
export function outputOf(result: unknown): string {
  return typeof result === "string" ? result : (JSON.stringify(result) ?? "");
}
