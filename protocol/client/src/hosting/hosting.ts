/**
 * Runs the tools and hooks of one session when the server asks for it.
 *
 * What always holds:
 * - a call runs once, by its id, however often it is delivered; a result that is known is sent again instead;
 * - a tool runs when `run_tool` says so, not when `tool_call` tells everybody about the call;
 * - what nobody waits for any more is aborted, and its result is not sent.
 */

import { asError } from "../errors.js";
import type { Environment } from "../connection/environment.js";
import type { EventFrame } from "../fold/fold.js";
import type { Call, SessionSnapshot } from "../fold/snapshot.js";
import type { CallId, HookAnswer, HookCall, RunTool } from "../wire.js";
import { type Hook, hookOf } from "./hooks.js";
import type { Offer } from "./offer.js";
import { outputOf } from "./tools.js";

/** Results that are kept in case they are asked for again. A session has a few open calls at a time. */
const RESULTS_MAX = 256;

/** Milliseconds that a call has at least, whatever this machine's clock says. */
const GRACE_MS = 5_000;

/** Ways to answer, given by the session. */
export interface Answers {
  /** Sends a tool's result. */
  tool(toolCallId: CallId, output: string, isError: boolean): Promise<unknown>;
  /** Sends a hook's answer. */
  hook(hookCallId: CallId, answer: HookAnswer): Promise<unknown>;
  /** Says that a call is still at work. */
  progress(about: { toolCallId?: CallId; hookCallId?: CallId }, message: string | undefined): Promise<unknown>;
}

/** A call that runs, or whose result is known. */
interface Work {
  readonly abort: AbortController;
  /** Sends the result again; absent while the call runs. */
  resend?: () => void;
  /** Ends the watch over the deadline. */
  cancelTimer: () => void;
}

/** The tools and hooks of one session. */
export class Hosting {
  readonly #environment: Environment;
  readonly #answers: Answers;
  readonly #work = new Map<CallId, Work>();
  #offer: Offer;

  /** Creates it with what is offered. */
  constructor(offer: Offer, environment: Environment, answers: Answers) {
    this.#offer = offer;
    this.#environment = environment;
    this.#answers = answers;
  }

  /** What is offered. */
  get offer(): Offer {
    return this.#offer;
  }

  /** Offers something else from now on. Calls that run go on. */
  change(offer: Offer): void {
    this.#offer = offer;
  }

  /** Takes an event of the session, after it was folded. */
  take(event: EventFrame, snapshot: SessionSnapshot): void {
    switch (event.type) {
      case "run_tool":
        return this.#runTool(event.payload, snapshot);
      case "hook_call":
        return this.#runHook(event.payload);
      case "tool_cancelled":
      case "call_resolved":
        return this.#drop(event.payload.toolCallId);
      case "hook_cancelled":
        return this.#drop(event.payload.hookCallId);
      case "call_progressed": {
        const { toolCallId, hookCallId, deadline } = event.payload;
        const id = toolCallId ?? hookCallId;
        return id === undefined ? undefined : this.#watch(id, deadline);
      }
      default:
        return undefined;
    }
  }

  /** Aborts everything: the session is closed here. */
  stop(): void {
    for (const id of [...this.#work.keys()]) this.#drop(id);
  }

  #runTool({ toolCallId }: RunTool, { pending }: SessionSnapshot): void {
    const call = pending.find((candidate) => candidate.toolCallId === toolCallId);
    // The event before this one has told of the call; one that is not open any more needs no result.
    if (!call || this.#isKnown(toolCallId)) return;
    this.#begin(toolCallId, call.deadline, (work) => this.#tool(call, work));
  }

  #runHook(call: HookCall): void {
    const { hookCallId, deadline } = call;
    const hook = hookOf(this.#offer.hooks ?? [], call);
    if (!hook || this.#isKnown(hookCallId)) return;
    this.#begin(hookCallId, deadline, (work) => this.#hook(hook, call, work));
  }

  async #tool({ toolCallId, turnId, name, arguments: text }: Call, work: Work): Promise<() => Promise<unknown>> {
    const { signal } = work.abort;
    const progress = (message?: string): void => quietly(this.#answers.progress({ toolCallId }, message));
    try {
      const tool = this.#offer.tools?.[name];
      if (!tool) throw new Error(`this client does not offer the tool ${name}`);
      const args = JSON.parse(text) as Record<string, unknown>;
      const output = outputOf(await tool.run(args, { toolCallId, turnId, name, signal, progress }));
      return () => this.#answers.tool(toolCallId, output, false);
    } catch (error) {
      return () => this.#answers.tool(toolCallId, asError(error).message, true);
    }
  }

  async #hook(hook: Hook, call: HookCall, work: Work): Promise<() => Promise<unknown>> {
    const { hookCallId } = call;
    const { signal } = work.abort;
    const progress = (message?: string): void => quietly(this.#answers.progress({ hookCallId }, message));
    let answer: HookAnswer;
    try {
      answer = (await hook.run(call, { signal, progress })) ?? {};
    } catch (error) {
      answer = { error: asError(error).message };
    }
    // A hook that only observes is not asked for an answer.
    return () => (call.deadline === undefined ? Promise.resolve() : this.#answers.hook(hookCallId, answer));
  }

  #begin(id: CallId, deadline: string | undefined, run: (work: Work) => Promise<() => Promise<unknown>>): void {
    const work: Work = { abort: new AbortController(), cancelTimer: () => undefined };
    this.#work.set(id, work);
    if (deadline !== undefined) this.#watch(id, deadline);
    void run(work).then((send) => {
      if (work.abort.signal.aborted) return;
      work.cancelTimer();
      work.resend = () => quietly(send());
      work.resend();
      this.#forgetOldest();
    });
  }

  /** Returns true if the call runs already, or has run: then its result is sent again. */
  #isKnown(id: CallId): boolean {
    const work = this.#work.get(id);
    work?.resend?.();
    return work !== undefined;
  }

  /**
   * Aborts a call at its deadline, in case the server's word of it does not arrive. The clocks may differ, so it is
   * never at once.
   */
  #watch(id: CallId, deadline: string): void {
    const work = this.#work.get(id);
    if (!work || work.resend) return;
    work.cancelTimer();
    const left = Date.parse(deadline) - this.#environment.now();
    work.cancelTimer = this.#environment.after(Math.max(left, GRACE_MS), () => {
      work.abort.abort(new DOMException("the call's deadline has passed", "TimeoutError"));
    });
  }

  #drop(id: CallId): void {
    const work = this.#work.get(id);
    if (!work) return;
    this.#work.delete(id);
    work.cancelTimer();
    if (!work.resend) work.abort.abort(new DOMException("the result is not awaited any more", "AbortError"));
  }

  #forgetOldest(): void {
    if (this.#work.size <= RESULTS_MAX) return;
    for (const [id, work] of this.#work) {
      if (!work.resend) continue;
      this.#work.delete(id);
      return;
    }
  }
}

/** Lets a refused or lost answer be: the server has told the turn about it, and asks again after a reconnect. */
function quietly(sent: Promise<unknown>): void {
  sent.catch(() => undefined);
}
