/**
 * Commands that can be typed in place of a message. Pure: it parses a line and does nothing else.
 *
 * @typedef {{ name: string, usage: string, does: string }} SlashCommand
 */

/** @type {SlashCommand[]} */
export const COMMANDS = [
  { name: "context", usage: "/context", does: "show what fills the window" },
  { name: "request", usage: "/request", does: "show what the next request sends, part by part" },
  { name: "history", usage: "/history", does: "show the context over the chat, and what the model saw for any answer" },
  { name: "tools", usage: "/tools", does: "show the tools, switch them off or on" },
  { name: "compact", usage: "/compact [instructions]", does: "summarise the older part now" },
  { name: "preview", usage: "/preview [instructions]", does: "see what a compaction would do, then decide" },
  { name: "undo", usage: "/undo", does: "undo the last compaction" },
  { name: "retry", usage: "/retry", does: "ask again when there was no answer" },
  { name: "regenerate", usage: "/regenerate [MODEL]", does: "ask for another version of the last answer, also by another model" },
  { name: "search", usage: "/search [WORDS]", does: "find what was said, in this chat or in all" },
  { name: "tree", usage: "/tree", does: "show the branches of this chat and move between them" },
  { name: "label", usage: "/label [NAME]", does: "name the newest message, or take its name away" },
  { name: "steer", usage: "/steer TEXT", does: "add something while an answer is written" },
  { name: "export", usage: "/export", does: "save this chat as Markdown or JSON, or print it" },
  { name: "new", usage: "/new", does: "begin a new chat" },
  { name: "rename", usage: "/rename NAME", does: "rename this chat" },
  { name: "model", usage: "/model [NAME]", does: "choose the model, and see which there are" },
  { name: "settings", usage: "/settings", does: "model, instructions, temperature, length of answers" },
  { name: "strategy", usage: "/strategy NAME", does: "choose the compaction strategy; manual: only when you ask" },
  { name: "frames", usage: "/frames", does: "show the live frames of this chat, for developers" },
  { name: "help", usage: "/help", does: "list commands and keys" },
];

/**
 * Parses a line as a command, or returns null for a message. Only a single word after the slash makes a command, so a
 * path such as `/usr/bin` is a message. A lone slash asks for help.
 * @param {string} text
 * @returns {{ name: string, rest: string, known: boolean } | null}
 */
export function parseCommand(text) {
  if (text.trim() === "/") return { name: "help", rest: "", known: true };
  const found = /^\/([a-z]+)(?:\s+([\s\S]*))?$/i.exec(text.trim());
  if (!found) return null;
  const name = found[1].toLowerCase();
  return { name, rest: (found[2] ?? "").trim(), known: COMMANDS.some((command) => command.name === name) };
}

/**
 * Returns the commands that a line may still become.
 * @param {string} text
 */
export function completions(text) {
  const found = /^\/([a-z]*)$/i.exec(text);
  return found ? COMMANDS.filter((command) => command.name.startsWith(found[1].toLowerCase())) : [];
}
