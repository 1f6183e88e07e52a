/**
 * Tracks the reader's position in the chat and keeps the view there.
 *
 * Invariants:
 * - the view follows the end until the reader moves up by wheel, touch, keys or scrollbar; reaching the end resumes
 *   following;
 * - while it does not follow, the content at the top of the view stays there, whatever changes above it, below it or in
 *   the width of the chat.
 */

/** Distance from the end in pixels within which a reader who moves down counts as having reached it. */
const END_PIXELS = 60;
/** Distance in pixels that a finger must move to count as a drag. */
const DRAG_PIXELS = 4;
/** Maximum depth of the search for the paragraph, list item or table row at the top of the view. */
const DEPTH_MAX = 8;

/** Elements that stack vertically. The children of a paragraph are inline, so it is not searched further. */
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
   * @param {() => boolean} options.isEnd whether the end of the drawn rows is the end of the chat
   * @param {() => void} options.onChange called when following starts or stops, or the view has moved
   */
  constructor(scroller, content, { isEnd, onChange }) {
    this.scroller = scroller;
    this.content = content;
    this.isEnd = isEnd;
    this.onChange = onChange;
    this.on = true;
    /** The scroll position at the last look. */
    this.top = 0;
    /**
     * The element at the top of the view: how far below the edge it begins, and what share of it is above the edge.
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
      // The end moves while an answer is written, so the browser's scroll to the current end would miss it.
      if (event.key === "End" && !typing) this.start();
    });
    const observer = new ResizeObserver(() => this.hold());
    observer.observe(scroller);
    observer.observe(content);
  }

  /** Returns the entry whose row is at the top of the view; null while the view follows. */
  get entryId() {
    const row = this.mark?.node.closest("[data-entry]");
    return row instanceof HTMLElement ? row.dataset.entry ?? null : null;
  }

  /** Returns the pixels below the view. */
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
    // Moving down to the end resumes following, and so does content that shrinks until the end is in view.
    if (scrollTop < this.top - 1) this.on = rest <= 1 && this.isEnd();
    else if (scrollTop > this.top && rest <= END_PIXELS) this.on = this.isEnd();
    this.look();
    this.onChange();
  }

  /** Restores the reader's position after a change. */
  hold() {
    const { scroller, mark } = this;
    if (this.on || (this.isEnd() && scroller.scrollHeight - scroller.clientHeight <= 1)) {
      this.on = true;
      scroller.scrollTop = scroller.scrollHeight;
    } else if (mark?.node.isConnected && Math.abs(scroller.scrollTop - this.top) < 1) {
      // Otherwise the reader is scrolling, and the scroll event is still to come.
      const { top, height } = mark.node.getBoundingClientRect();
      // At another width lines break elsewhere, so restore the share that was read instead of pixels.
      const pixels = mark.width === scroller.clientWidth || mark.pixels > 0 ? mark.pixels : -mark.share * height;
      const by = top - scroller.getBoundingClientRect().top - pixels;
      if (Math.abs(by) >= 1) scroller.scrollTop += by;
    }
    this.look();
    this.onChange();
  }

  /** Remembers what is at the top of the view. */
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
   * Returns true if an element inside the chat scrolls up itself, such as unfolded details.
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
 * Returns the first child that extends below the edge.
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
