/**
 * Text files in messages. The model reads a file as a part of the message, between tags that name it; the page shows it
 * folded. Pure.
 *
 * @typedef {import("reseed-protocol").Part} Part
 */

const FILE = /^<file name="([^"\n]{1,200})">\n([\s\S]*)\n<\/file>$/;

/**
 * Makes the part of a text file.
 * @param {string} name
 * @param {string} text
 * @returns {Part}
 */
export function filePart(name, text) {
  const plain = name.replace(/["\n]/g, "").slice(0, 200) || "file";
  return { type: "text", text: `<file name="${plain}">\n${text}\n</file>` };
}

/**
 * Returns the file in a part, or null if it is none.
 * @param {Part} part
 * @returns {{ name: string, text: string } | null}
 */
export function fileOf(part) {
  const found = part.type === "text" ? FILE.exec(part.text) : null;
  return found && { name: found[1], text: found[2] };
}

/**
 * Splits the content of a message into what was typed and what was attached.
 * @param {readonly Part[]} content
 * @returns {{ text: string, attached: Part[] }}
 */
export function split(content) {
  const typed = content.flatMap((part) => (part.type === "text" && !fileOf(part) ? [part.text] : []));
  return { text: typed.join("\n"), attached: content.filter((part) => part.type === "image" || fileOf(part)) };
}

/**
 * Returns the content of a message.
 * @param {{ text: string, attached: readonly Part[] }} draft
 * @returns {Part[]}
 */
export function joined({ text, attached }) {
  // What was typed comes first, because a chat is named after its first words.
  return [...(text.trim() === "" && attached.length > 0 ? [] : [{ type: /** @type {const} */ ("text"), text }]), ...attached];
}
