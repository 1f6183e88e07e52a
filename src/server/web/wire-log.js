/**
 * The newest frames of the page's connection, for the developers' drawer.
 *
 * Invariants:
 * - frames that only show progress are many, so they have a budget of their own and make no other frame leave;
 * - none of the frames outlives the page;
 * - frames with credentials are not kept.
 *
 * @typedef {{ number: number, at: number, isSent: boolean, isProgress: boolean, text: string }} Logged
 */

/** Maximum frames of each kind: those that only show progress, and all others. */
const FRAMES_MAX = 500;
/** Maximum characters of frames that only show progress, and of all others. */
const PROGRESS_CHARS_MAX = 500_000;
const CHARS_MAX = 1_500_000;

/** Frames that only show progress. */
const PROGRESS = /"type":"(?:item_delta|compaction_progress|call_progressed)"/;

/** Frames that may carry a ticket or a token. */
const SECRET = /"type":"(?:hello|authenticate)"/;

/** The newest frames of one kind. */
class Ring {
  /** @param {number} charsMax */
  constructor(charsMax) {
    this.charsMax = charsMax;
    /** @type {Logged[]} */
    this.frames = [];
    this.chars = 0;
  }

  /** @param {Logged} logged */
  add(logged) {
    this.frames.push(logged);
    this.chars += logged.text.length;
    while (this.frames.length > FRAMES_MAX || (this.chars > this.charsMax && this.frames.length > 1)) {
      this.chars -= this.frames.shift()?.text.length ?? 0;
    }
  }
}

export class WireLog {
  constructor() {
    this.progress = new Ring(PROGRESS_CHARS_MAX);
    this.others = new Ring(CHARS_MAX);
    this.count = 0;
    /** @type {(() => void) | null} called after each frame */
    this.onAdd = null;
  }

  /** Returns the frames that are kept, oldest first. */
  get frames() {
    return [...this.progress.frames, ...this.others.frames].sort((one, other) => one.number - other.number);
  }

  /**
   * @param {boolean} isSent
   * @param {unknown} text
   */
  add(isSent, text) {
    if (typeof text !== "string" || (isSent && SECRET.test(text.slice(0, 400)))) return;
    this.count += 1;
    const isProgress = !isSent && PROGRESS.test(text.slice(0, 200));
    const ring = isProgress ? this.progress : this.others;
    ring.add({ number: this.count, at: Date.now(), isSent, isProgress, text });
    this.onAdd?.();
  }
}

export const wireLog = new WireLog();

/** A socket whose frames are logged. */
export class LoggedSocket extends WebSocket {
  /**
   * @param {string} url
   * @param {string} protocols
   */
  constructor(url, protocols) {
    super(url, protocols);
    this.addEventListener("message", ({ data }) => wireLog.add(false, data));
  }

  /** @param {string} text */
  send(text) {
    wireLog.add(true, text);
    super.send(text);
  }
}
