/** Decides when the page is drawn: at most once a frame, and not while a button is being pressed. */

/**
 * Maximum milliseconds for which a pressed button delays drawing. A longer press is not about to become a click, and
 * the answer must keep appearing.
 */
const PRESS_MS = 1000;

/** Milliseconds within which a tap's click follows its end. */
const TAP_MS = 100;

/** Elements that are clicked where they were pressed: a click that ends on another element does nothing. */
const PRESSED = [
  "button", "summary", "a", "label", "select", "input[type=checkbox]", "input[type=radio]", "[role=treeitem]",
  "[role=option]",
].join();

/**
 * Returns a function that schedules drawing, however often it is called.
 *
 * While an answer is written, the buttons below it move down with each line. A button that moved between press and
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
    // A press has come since the frame was requested: its release draws.
    if (pressed !== null || !waits) return;
    waits = false;
    render();
  };
  const release = () => {
    if (pressed === null) return;
    clearTimeout(pressed);
    pressed = null;
    // Let the click run first: a mouse's click is part of the release.
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
