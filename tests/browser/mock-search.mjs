/**
 * The mock server's `search_history`: every search word must start a word of the entry, and the newest entry comes
 * first. A search for "refused" is refused, and one for "held" waits for `release`.
 */

export const SEARCH_FEATURES = ["search_history"];

const textOf = (entry) => entry.summary ?? (entry.content ?? []).map((part) => part.text ?? part.output ?? "").join(" ");

const roleOf = ({ type, role }) => (type === "message" ? role : "summary");

export const searchCommands = {
  async on_search_history({ payload, world, reply, refuse }) {
    const { query, limit = 20 } = payload;
    if (/\brefused\b/.test(query)) return refuse("store_failed", "the index cannot be read");
    if (/\bheld\b/.test(query)) await this.hold(query);
    const words = query.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
    const fits = (entry) => words.every((word) => new RegExp(`(?<![\\p{L}\\p{N}])${word}`, "u").test(textOf(entry).toLowerCase()));
    const hits = (of) => [...of.tree.values()].reverse().filter((entry) => textOf(entry) && fits(entry)).map((entry) => ({
      sessionId: of.sessionId, ...(of.name ? { name: of.name } : {}), entryId: entry.entryId, timestamp: entry.timestamp, role: roleOf(entry), snippet: textOf(entry).slice(0, 300),
    }));
    const found = (world ? [world] : [...this.worlds.values()].reverse()).flatMap(hits);
    reply("history_hits", { items: found.slice(0, limit), more: found.length > limit });
  },
};
