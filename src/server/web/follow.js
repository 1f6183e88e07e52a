/**
 * Where the reader of the chat is, and how the view stays there.
 *
 * What always holds:
 * - the view follows the end until the reader moves up, by wheel, touch, keys or scrollbar; reaching the end resumes
 *   it;
 * - while it does not follow, what stands at the top of the view stays there, whatever changes above it, below it or in
 *   the width of the chat.
 */

/** Pixels from the end within which a reader who moves down has reached it. */
const END_PIXELS = 60;
/** Pixels that a finger moves before it is a drag. */
const DRAG_PIXELS = 4;
/** Levels down to the paragraph, list item or line of a table that is at the top of the view. */
const DEPTH_MAX = 8;

/** Elements that stand below each other; a paragraph's own are in its lines. */
const BLOCKS = new Set([
  "OL", "UL", "LI", "DIV", "P", "PRE", "H3", "H4", "H5", "H6", "HR", "BLOCKQUOTE", "FIGURE", "TABLE", "THEAD", "TBODY", "TR",
  "DETAILS", "FOOTER",
]);

const UP_KEYS = new Set(["ArrowUp", "PageUp", "Home"]);

export class Follow {
  /**
   * @param {HTMLElement} scroller
   * @param {HTMLElement} content what it scrolls
   * @param {object} options
   * @param {() => boolean} options.isEnd whether the end of what is drawn is the end of the chat
   * @param {() => void} options.onChange the view began or ceased to follow, or has moved
   */
  constructor(scroller, content, { isEnd, onChange }) {
    this.scroller = scroller;
    this.content = content;
    this.isEnd = isEnd;
    this.onChange = onChange;
    this.on = true;
    /** Where the view was at the last look. */
    this.top = 0;
    /**
     * What stands at the top of the view: how far below the edge it begins, and which share of it is above.
     * @type {{ node: Element, pixels: number, share: number, width: number } | null}
     */
    this.mark = null;
    let fingerY = 0;
    scroller.addEventListener("scroll", () => this.scrolled(), { passive: true });
    scroller.addEventListener("wheel", (event) => {
      if (event.deltaY < 0 && !event.ctrlKey && !this.isTaken(event.target)) this.stop();
    }, { passive: true });
    scroller.addEventListener("touchstart", (event) => (fingerY = event.touches[0].clientY), { passive: true });
    scroller.addEventListener("touchmove", (event) => {
      if (event.touches[0].clientY - fingerY > DRAG_PIXELS && !this.isTaken(event.target)) this.stop();
    }, { passive: true });
    scroller.addEventListener("keydown", (event) => {
      const typing = event.target instanceof Element && event.target.closest("input, textarea, select");
      const up = UP_KEYS.has(event.key) || (event.key === " " && event.shiftKey);
      if (up && !typing && !this.isTaken(event.target)) this.stop();
      // The end moves on while an answer is written: a scroll to where it was would miss it.
      if (event.key === "End" && !typing) this.start();
    });
    const observer = new ResizeObserver(() => this.hold());
    observer.observe(scroller);
    observer.observe(content);
  }

  /** The entry whose row is at the top of the view; null while the view follows. */
  get entryId() {
    const row = this.mark?.node.closest("[data-entry]");
    return row instanceof HTMLElement ? row.dataset.entry ?? null : null;
  }

  /** Pixels below the view. */
  get rest() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    return scrollHeight - scrollTop - clientHeight;
  }

  stop() {
    if (!this.on || this.scroller.scrollTop <= 0) return;
    this.on = false;
    this.look();
    this.onChange();
  }

  start() {
    this.on = true;
    this.hold();
    this.onChange();
  }

  scrolled() {
    const { scrollTop } = this.scroller;
    const { rest } = this;
    // A move down to the end resumes, and so does content that has shrunk until the end is in view.
    if (scrollTop < this.top - 1) this.on = rest <= 1 && this.isEnd();
    else if (scrollTop > this.top && rest <= END_PIXELS) this.on = this.isEnd();
    this.look();
    this.onChange();
  }

  /** Brings the view back to where the reader is, after something has changed. */
  hold() {
    const { scroller, mark } = this;
    if (this.on || (this.isEnd() && scroller.scrollHeight - scroller.clientHeight <= 1)) {
      this.on = true;
      scroller.scrollTop = scroller.scrollHeight;
    } else if (mark?.node.isConnected && Math.abs(scroller.scrollTop - this.top) < 1) {
      // Otherwise the reader is moving, and the event that says so is still to come.
      const { top, height } = mark.node.getBoundingClientRect();
      // In another width the lines break elsewhere: what counts is how much of it was read.
      const pixels = mark.width === scroller.clientWidth || mark.pixels > 0 ? mark.pixels : -mark.share * height;
      const by = top - scroller.getBoundingClientRect().top - pixels;
      if (Math.abs(by) >= 1) scroller.scrollTop += by;
    }
    this.look();
    this.onChange();
  }

  /** Remembers what stands at the top of the view. */
  look() {
    const { scroller } = this;
    this.top = scroller.scrollTop;
    this.mark = null;
    if (this.on) return;
    const edge = scroller.getBoundingClientRect().top;
    let node = firstBelow(this.content, edge);
    for (let depth = 0; node && depth < DEPTH_MAX; depth += 1) {
      const inner = firstBelow(node, edge);
      if (!inner) break;
      node = inner;
    }
    if (!node) return;
    const { top, height } = node.getBoundingClientRect();
    this.mark = { node, pixels: top - edge, share: height > 0 ? (edge - top) / height : 0, width: scroller.clientWidth };
  }

  /**
   * Whether something inside the chat scrolls up itself, such as unfolded details.
   * @param {EventTarget | null} target
   */
  isTaken(target) {
    let node = target instanceof Element ? target : null;
    for (; node && node !== this.scroller; node = node.parentElement) {
      if (node.scrollTop > 0 && ["auto", "scroll"].includes(getComputedStyle(node).overflowY)) return true;
    }
    return false;
  }
}

/**
 * The first child that reaches below a line.
 * @param {Element} parent
 * @param {number} edge
 */
function firstBelow(parent, edge) {
  for (const child of parent.children) {
    if (!BLOCKS.has(child.nodeName)) continue;
    const { bottom, height } = child.getBoundingClientRect();
    if (height > 0 && bottom > edge + 1) return child;
  }
  return null;
}
