/**
 * Describes a hook's change to the model's view as a line in the chat. Pure.
 *
 * @typedef {Extract<import("reseed-protocol").Entry, { type: "context_transform" }>} TransformEntry
 */

/**
 * Returns the line and its foldable content, or null for an unknown form of change, which the server skips too.
 * @param {TransformEntry} entry
 * @returns {{ text: string, markdown: string | null } | null}
 */
export function transformLine({ transformerName, patch, display }) {
  if (typeof transformerName !== "string" || !Array.isArray(patch)) return null;
  if (display?.showInChat && display.title) {
    return { text: [display.title, display.summary].filter(Boolean).join(": "), markdown: display.markdown || null };
  }
  const reasons = patch.map((op) => ("invalidateCacheReason" in op ? String(op.invalidateCacheReason ?? "").trim() : ""));
  const told = [...new Set(reasons)].filter(Boolean).join("; ");
  return { text: `The hook “${transformerName}” changed what the model sees${told ? `: ${told}` : "."}`, markdown: null };
}
