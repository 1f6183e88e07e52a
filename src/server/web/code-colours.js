/**
 * Colours the code of finished answers when the browser is idle. The tokenizer is loaded with the first code. Where it
 * cannot be loaded, or the browser cannot paint ranges, code stays plain.
 */

/** Runs a function when nothing else is to be done. */
const idle = window.requestIdleCallback ?? ((/** @type {() => void} */ run) => setTimeout(run, 100));

export class CodeColours {
  /** @param {HTMLElement} root contains the answers */
  constructor(root) {
    this.root = root;
    /** @type {WeakMap<Text, string>} the texts that were coloured, as they were then */
    this.done = new WeakMap();
    this.waits = false;
  }

  /** Looks for code that is not coloured yet. */
  look() {
    if (this.waits || !CSS.highlights) return;
    this.waits = true;
    idle(() => void this.next());
  }

  /** Colours one block, and goes on when the browser is idle again. */
  async next() {
    this.waits = false;
    const code = [...this.root.querySelectorAll(".code")].find((block) => {
      const text = textOf(block);
      return text !== null && this.done.get(text) !== text.data;
    });
    const text = code ? textOf(code) : null;
    if (!code || !text) return;
    this.done.set(text, text.data);
    try {
      const { paint } = await import("./highlight.js");
      paint(text, code.querySelector("figcaption span")?.textContent ?? "");
    } catch {
      // It is tried again with the next code.
      this.done.delete(text);
      return;
    }
    this.look();
  }
}

/**
 * Returns the text of a block of code.
 * @param {Element} block
 */
function textOf(block) {
  const node = block.querySelector("code")?.firstChild;
  return node instanceof Text ? node : null;
}
