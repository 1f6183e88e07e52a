/**
 * Runs the tools and hooks of one session at the server's request.
 *
 * Invariants:
 * - a call runs once per id, however often it is delivered; a known result is resent instead;
 * - a tool runs on `run_tool`, not when `tool_call` announces the call to everybody;
 * - a call whose result is no longer awaited is aborted, and its result is not sent;
 * - only the server enforces deadlines: a call aborted here for its deadline still sends the result it reaches.
 */

import { asError, CommandError, CommandTooLarge, OutboxFull } from "../errors.js";
import type { Environment } from "../connection/environment.js";
import type { EventFrame } from "../fold/fold.js";
import type { Call, SessionSnapshot } from "../fold/snapshot.js";
import type { CallId, HookAnswer, HookCall, PendingCall, RunTool } from "../wire.js";
import { type Hook, hookOf } from "./hooks.js";
import type { Offer } from "./offer.js";
import { outputOf } from "./tools.js";

/** Maximum calls remembered after they have ended here. A session has only a few open calls at a time. */
const ENDED_MAX = 256;

/** Minimum milliseconds for a call without its own limit, whatever this machine's clock says. */
const GRACE_MS = 60_000;

/** Milliseconds until a result that could not be sent is resent, and the maximum number of attempts. */
const RESEND_MS = 1_000;
const RESENDS_MAX = 5;

/** Errors about the content of a result, besides those named `invalid_*`. */
const UNSENDABLE: ReadonlySet<string> = new Set(["unknown_field", "missing_field", "duplicate_key", "too_deep"]);

/** Ways to answer, provided by the session. */
export interface Answers {
  /** Sends a tool's result. */
  tool(toolCallId: CallId, output: string, isError: boolean): Promise<unknown>;
  /** Sends a hook's answer. */
  hook(hookCallId: CallId, answer: HookAnswer): Promise<unknown>;
  /** Reports that a call is still running, if the session is open. */
  progress(about: { toolCallId?: CallId; hookCallId?: CallId }, message: string | undefined): Promise<unknown>;
}

/** The result of a call. */
type Result =
  | { readonly type: "tool"; readonly output: string; readonly isError: boolean }
  | { readonly type: "hook"; readonly answer: HookAnswer };

/** A running or finished call. It does not keep the call itself, which may be as large as the context. */
interface Work {
  readonly id: CallId;
  readonly type: Result["type"];
  /** The limit in milliseconds that the offer asked for. */
  readonly timeoutMs: number;
  readonly abort: AbortController;
  /** The deadline last reported. */
  deadline: string | undefined;
  /** True once the handler has returned. */
  hasEnded: boolean;
  /** The result, for a call that is delivered again; `null` while the call runs, and once it is no longer needed. */
  result: Result | null;
  /** Cancels the deadline timer, or the delay before the result is resent. */
  cancelTimer: () => void;
}

/** The tools and hooks of one session. */
export class Hosting {
  readonly #environment: Environment;
  readonly #answers: Answers;
  readonly #work = new Map<CallId, Work>();
  #offer: Offer;

  /** Creates it with the initial offer. */
  constructor(offer: Offer, environment: Environment, answers: Answers) {
    this.#offer = offer;
    this.#environment = environment;
    this.#answers = answers;
  }

  /** The current offer. */
  get offer(): Offer {
    return this.#offer;
  }

  /** Changes the offer. Running calls continue. */
  change(offer: Offer): void {
    this.#offer = offer;
  }

  /** Handles a session event after it was folded. */
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

  /**
   * Takes the open calls from `session_opened`: their deadlines may have moved meanwhile. Other calls have ended. The
   * missed events report that, unless a new snapshot skips them.
   */
  reopened(pending: readonly PendingCall[], isReplay: boolean): void {
    const open = new Set(pending.map(({ toolCallId }) => toolCallId));
    const ended = [...this.#work.values()].filter(({ id, type }) => !isReplay && type === "tool" && !open.has(id));
    for (const { id } of ended) this.#drop(id);
    for (const { toolCallId, deadline } of pending) this.#watch(toolCallId, deadline);
  }

  /** Aborts everything: the session is closed here. */
  stop(): void {
    for (const id of [...this.#work.keys()]) this.#drop(id);
  }

  #runTool({ toolCallId }: RunTool, { pending }: SessionSnapshot): void {
    const call = pending.find((candidate) => candidate.toolCallId === toolCallId);
    // The preceding event announced the call; a call that is no longer open needs no result.
    if (!call || this.#isKnown(toolCallId, call.deadline)) return;
    const timeoutMs = this.#offer.tools?.[call.name]?.timeoutMs ?? GRACE_MS;
    const work = this.#begin("tool", toolCallId, timeoutMs, call.deadline);
    void this.#tool(call, work).then((result) => this.#ended(work, result));
  }

  #runHook(call: HookCall): void {
    const { hookCallId, deadline } = call;
    const hook = hookOf(this.#offer.hooks ?? [], call);
    if (!hook || this.#isKnown(hookCallId, deadline)) return;
    const work = this.#begin("hook", hookCallId, hook.timeoutMs ?? GRACE_MS, deadline);
    void this.#hook(hook, call, work).then((result) => this.#ended(work, result));
  }

  async #tool({ toolCallId, turnId, name, arguments: text }: Call, work: Work): Promise<Result> {
    const { signal } = work.abort;
    const progress = (message?: string): void => this.#progress(work, message);
    try {
      const tool = this.#offer.tools?.[name];
      if (!tool) throw new Error(`this client does not offer the tool ${name}`);
      const args = JSON.parse(text) as Record<string, unknown>;
      const output = outputOf(await tool.run(args, { toolCallId, turnId, name, signal, progress }));
      return { type: "tool", output, isError: false };
    } catch (error) {
      return failed("tool", asError(error).message);
    }
  }

  async #hook(hook: Hook, call: HookCall, work: Work): Promise<Result | null> {
    const { signal } = work.abort;
    const progress = (message?: string): void => this.#progress(work, message);
    let result: Result;
    try {
      result = { type: "hook", answer: (await hook.run(call, { signal, progress })) ?? {} };
    } catch (error) {
      result = failed("hook", asError(error).message);
    }
    // A hook that only observes sends no answer.
    return call.deadline === undefined ? null : result;
  }

  #progress({ id, type, abort }: Work, message: string | undefined): void {
    if (abort.signal.aborted) return;
    const about = type === "tool" ? { toolCallId: id } : { hookCallId: id };
    // If this fails, the deadline merely stays where it was.
    this.#answers.progress(about, message).catch(() => undefined);
  }

  #begin(type: Result["type"], id: CallId, timeoutMs: number, deadline: string | undefined): Work {
    const work: Work = {
      id,
      type,
      timeoutMs,
      abort: new AbortController(),
      deadline: undefined,
      hasEnded: false,
      result: null,
      cancelTimer: () => undefined,
    };
    this.#work.set(id, work);
    if (deadline !== undefined) this.#watch(id, deadline);
    return work;
  }

  #ended(work: Work, result: Result | null): void {
    work.cancelTimer();
    work.hasEnded = true;
    if (this.#work.get(work.id) !== work) return;
    work.result = result;
    this.#send(work);
    this.#forgetOldest();
  }

  /**
   * Sends the result. A result that cannot be sent becomes a failure that states the reason, so that the turn
   * continues.
   */
  #send(work: Work, tries = 0): void {
    const { result } = work;
    if (!result) return;
    this.#answer(work.id, result).then(
      () => {
        // The server never asks for a hook's answer again; a tool's result is kept until `call_resolved`.
        if (result.type === "hook") work.result = null;
      },
      (error: unknown) => {
        // It was dropped meanwhile, or is being resent for another reason.
        if (this.#work.get(work.id) !== work || work.result !== result) return;
        if (isForNow(error)) {
          if (tries >= RESENDS_MAX) return;
          const wait = Math.max(RESEND_MS * 2 ** tries, (error as Partial<CommandError>).retryAfterMs ?? 0);
          work.cancelTimer();
          work.cancelTimer = this.#environment.after(wait, () => this.#send(work, tries + 1));
        } else if (isUnsendable(error) && !isFailure(result)) {
          work.result = failed(result.type, `the result could not be sent: ${asError(error).message}`);
          this.#send(work);
        } else if (error instanceof CommandError) work.result = null;
      },
    );
  }

  /** Sends a result; one that cannot be serialised as JSON rejects too. */
  async #answer(id: CallId, result: Result): Promise<unknown> {
    if (result.type === "tool") return this.#answers.tool(id, result.output, result.isError);
    return this.#answers.hook(id, result.answer);
  }

  /** Returns true if the call is running or has ended; in the latter case its result is resent. */
  #isKnown(id: CallId, deadline: string | undefined): boolean {
    const work = this.#work.get(id);
    if (!work) return false;
    if (deadline !== undefined) this.#watch(id, deadline);
    this.#send(work);
    return true;
  }

  /**
   * Aborts a call at its deadline, in case the server's notice never arrives. Clocks may differ, so a call gets at
   * least its own limit, counted anew from each new deadline.
   */
  #watch(id: CallId, deadline: string): void {
    const work = this.#work.get(id);
    const isLater = (known: string): boolean => Date.parse(deadline) > Date.parse(known);
    if (!work || work.hasEnded || (work.deadline !== undefined && !isLater(work.deadline))) return;
    work.deadline = deadline;
    work.cancelTimer();
    const left = Date.parse(deadline) - this.#environment.now();
    work.cancelTimer = this.#environment.after(Math.max(left, work.timeoutMs), () => {
      work.abort.abort(new DOMException("the call's deadline has passed", "TimeoutError"));
      this.#forgetOldest();
    });
  }

  #drop(id: CallId): void {
    const work = this.#work.get(id);
    if (!work) return;
    this.#work.delete(id);
    work.cancelTimer();
    if (!work.hasEnded) work.abort.abort(new DOMException("the result is no longer awaited", "AbortError"));
  }

  #forgetOldest(): void {
    const over = [...this.#work.values()].filter((work) => work.hasEnded || work.abort.signal.aborted);
    for (const work of over.slice(0, Math.max(0, over.length - ENDED_MAX))) this.#drop(work.id);
  }
}

function failed(type: Result["type"], reason: string): Result {
  return type === "tool" ? { type, output: reason, isError: true } : { type, answer: { error: reason } };
}

function isFailure(result: Result): boolean {
  return result.type === "tool" ? result.isError : result.answer.error !== undefined;
}

/** Returns true if the same result may be accepted a moment later. */
function isForNow(error: unknown): boolean {
  return error instanceof OutboxFull || (error instanceof CommandError && error.retriable);
}

/** Returns true if a result will never be accepted, but another one would be. */
function isUnsendable(error: unknown): boolean {
  if (error instanceof CommandError) return error.code.startsWith("invalid_") || UNSENDABLE.has(error.code);
  // A `TypeError` comes from JSON serialisation: a cycle, or a `BigInt`.
  return error instanceof CommandTooLarge || error instanceof TypeError;
}
