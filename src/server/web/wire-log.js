/**
 * The newest frames of the page's connection, for the developers' drawer.
 *
 * Invariants:
 * - at most `FRAMES_MAX` frames and `CHARS_MAX` characters are kept, and none of them outlives the page;
 * - frames with credentials are not kept.
 *
 * @typedef {{ number: number, at: number, isSent: boolean, isProgress: boolean, text: string }} Logged
 */

const FRAMES_MAX = 500;
const CHARS_MAX = 2_000_000;

/** Frames that only show progress. They are many, so they make room first. */
const PROGRESS = /"type":"(?:item_delta|compaction_progress|call_progress)"/;

/** Frames that may carry a ticket or a token. */
const SECRET = /"type":"(?:hello|authenticate)"/;

class WireLog {
  constructor() {
    /** @type {Logged[]} */
    this.frames = [];
    this.chars = 0;
    this.count = 0;
    /** @type {(() => void) | null} called after each frame */
    this.onAdd = null;
  }

  /**
   * @param {boolean} isSent
   * @param {unknown} text
   */
  add(isSent, text) {
    if (typeof text !== "string" || (isSent && SECRET.test(text.slice(0, 400)))) return;
    this.count += 1;
    this.frames.push({ number: this.count, at: Date.now(), isSent, isProgress: !isSent && PROGRESS.test(text.slice(0, 200)), text });
    this.chars += text.length;
    while (this.frames.length > FRAMES_MAX || (this.chars > CHARS_MAX && this.frames.length > 1)) {
      const [gone] = this.frames.splice(Math.max(0, this.frames.findIndex(({ isProgress }) => isProgress)), 1);
      this.chars -= gone.text.length;
    }
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
