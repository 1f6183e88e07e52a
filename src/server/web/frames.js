/** When the page is drawn: at most once a frame, and not under a finger that presses a button. */

/**
 * Milliseconds for which a pressed button holds up drawing; one that is held longer is not about to be clicked, and the
 * answer goes on being shown.
 */
const PRESS_MS = 1000;

/** Milliseconds within which the click of a tap follows its end. */
const TAP_MS = 100;

/** What is clicked where it was pressed: a click that ends on something else does nothing. */
const PRESSED = [
  "button", "summary", "a", "label", "select", "input[type=checkbox]", "input[type=radio]", "[role=treeitem]",
  "[role=option]",
].join();

/**
 * Returns a function that has the page drawn, however often it is called.
 *
 * While an answer is written, the buttons below it move down with each line. One that moved between the press and the
 * release would not be clicked, so nothing is drawn in between.
 * @param {() => void} render
 */
export function frames(render) {
  let waits = false;
  /** @type {ReturnType<typeof setTimeout> | null} */
  let pressed = null;
  const schedule = () => {
    if (waits) return;
    waits = true;
    if (pressed === null) requestAnimationFrame(draw);
  };
  const draw = () => {
    // Pressed since the frame was asked for: the release draws it.
    if (pressed !== null || !waits) return;
    waits = false;
    render();
  };
  const release = () => {
    if (pressed === null) return;
    clearTimeout(pressed);
    pressed = null;
    // The click comes first: a mouse's is a part of the release.
    if (waits) requestAnimationFrame(draw);
  };
  const options = { capture: true, passive: true };
  document.addEventListener("pointerdown", ({ target, isPrimary }) => {
    if (!isPrimary) return;
    release();
    if (target instanceof Element && target.closest(PRESSED)) pressed = setTimeout(release, PRESS_MS);
  }, options);
  document.addEventListener("pointerup", ({ pointerType, isPrimary }) => {
    if (!isPrimary || pressed === null) return;
    if (pointerType === "mouse") return release();
    clearTimeout(pressed);
    pressed = setTimeout(release, TAP_MS);
  }, options);
  document.addEventListener("click", release, options);
  document.addEventListener("pointercancel", release, options);
  return schedule;
}
