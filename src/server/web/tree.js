/**
 * The known shape of a session: one line per entry, from `get_tree`, from pages and from events.
 *
 * Invariants:
 * - a tree only grows, so what arrives twice, late or out of order changes nothing: the larger count and the first line
 *   win;
 * - an entry's name is the newest one in the log that names it;
 * - nothing here touches the page, the clock or the network.
 *
 * @typedef {import("reseed-protocol").Entry} Entry
 * @typedef {import("reseed-protocol").Tree} TreePage
 *
 * @typedef {object} Node
 * @property {string} entryId
 * @property {string | null} parentId
 * @property {string} type as in `get_tree`: for a message, followed by its role
 * @property {string} preview
 * @property {string} timestamp
 * @property {string[]} children in order of arrival, as far as known
 * @property {number} childCount how many there are; more than `children` if some are unknown
 * @property {number} toldAt the last event that `childCount` reflects
 */

/** Maximum characters of a preview, as on the server. */
const PREVIEW_CHARS = 80;

/** Entries without content of their own in the chat: what follows them distinguishes their branches. */
const QUIET = new Set([
  "label", "session_info", "custom", "model_change", "thinking_level_change", "foreign", "ephemeral", "context_transform",
  "branch_summary", "compaction",
]);

/**
 * Returns true if the entry says something and so is an alternative to others at the same place.
 * @param {Node} node
 */
export function speaks(node) {
  return !QUIET.has(node.type);
}

export class SessionTree {
  constructor() {
    /** @type {Map<string, Node>} */
    this.nodes = new Map();
    /** @type {string[]} */
    this.roots = [];
    /** @type {Map<string, string[]>} entries whose parent is not known yet, by parent */
    this.waiting = new Map();
    /** Whether all roots are known: the whole tree was fetched from its beginning. */
    this.whole = false;
    /** @type {Map<string, { label: string | undefined, at: number }>} names by entry, with the event that set each */
    this.labels = new Map();
    /** Grows with every change, so that views know when to redraw. */
    this.version = 0;
  }

  /**
   * Adds a response to `get_tree`.
   * @param {TreePage} page
   * @param {boolean} fromRoots whether it was requested without a root
   */
  addPage({ nodes, asOfSeq }, fromRoots) {
    this.version += 1;
    if (fromRoots) this.whole = true;
    for (const { entryId, parentId, type, preview, label, timestamp, childCount } of nodes) {
      const node = this.add({ entryId, parentId, type, preview, timestamp });
      node.childCount = Math.max(node.childCount, childCount);
      node.toldAt = Math.max(node.toldAt, asOfSeq);
      this.name(entryId, label, asOfSeq);
    }
  }

  /**
   * Adds part of a path. How many other children its entries have remains unknown.
   * @param {readonly Entry[]} entries oldest first
   */
  addPath(entries) {
    for (const entry of [...entries].reverse()) {
      // Going newest first, the first label wins; an event or a page of the tree overrides both.
      if (entry.type === "label" && !this.labels.has(entry.targetId)) this.name(entry.targetId, entry.label, 0);
      if (!this.nodes.has(entry.entryId)) this.add(lineOf(entry));
    }
  }

  /**
   * Adds an entry that was just appended.
   * @param {Entry} entry
   * @param {number} seq sequence number of the event
   */
  append(entry, seq) {
    if (entry.type === "label") this.name(entry.targetId, entry.label, seq);
    if (this.nodes.has(entry.entryId)) return;
    const parent = entry.parentId === null ? undefined : this.nodes.get(entry.parentId);
    if (parent && parent.toldAt > 0 && seq > parent.toldAt) {
      parent.toldAt = seq;
      parent.childCount += 1;
    }
    this.add(lineOf(entry)).toldAt = seq;
  }

  /**
   * @param {Pick<Node, "entryId" | "parentId" | "type" | "preview" | "timestamp">} told
   * @returns {Node}
   */
  add(told) {
    const known = this.nodes.get(told.entryId);
    if (known) return known;
    this.version += 1;
    /** @type {Node} */
    const node = { ...told, children: [], childCount: 0, toldAt: 0 };
    this.nodes.set(told.entryId, node);
    const parent = told.parentId === null ? null : this.nodes.get(told.parentId);
    if (parent === null) {
      this.hang(this.roots, node);
    } else if (parent) {
      this.hang(parent.children, node);
      parent.childCount = Math.max(parent.childCount, parent.children.length);
    } else {
      const parentId = /** @type {string} */ (told.parentId);
      this.waiting.set(parentId, [...(this.waiting.get(parentId) ?? []), told.entryId]);
    }
    for (const id of this.waiting.get(told.entryId) ?? []) {
      const child = this.nodes.get(id);
      if (child) this.hang(node.children, child);
    }
    this.waiting.delete(told.entryId);
    node.childCount = node.children.length;
    return node;
  }

  /**
   * @param {string[]} siblings
   * @param {Node} node
   */
  hang(siblings, node) {
    const after = siblings.findLastIndex((id) => (this.nodes.get(id)?.timestamp ?? "") <= node.timestamp);
    siblings.splice(after + 1, 0, node.entryId);
  }

  /**
   * @param {string} entryId
   * @param {string | undefined} label
   * @param {number} at
   */
  name(entryId, label, at) {
    const known = this.labels.get(entryId);
    if (known && known.at > at) return;
    if (known?.label !== label) this.version += 1;
    this.labels.set(entryId, { label, at });
  }

  /** @param {string} entryId */
  labelOf(entryId) {
    return this.labels.get(entryId)?.label;
  }

  /**
   * Returns true if all children of an entry are known.
   * @param {Node} node
   */
  isComplete(node) {
    return node.toldAt > 0 && node.children.length >= node.childCount;
  }

  /**
   * Returns an entry and its alternatives, oldest first: everything said at the same place. Entries without content,
   * such as names, do not separate them.
   * @param {string} entryId
   * @returns {string[]}
   */
  alternatives(entryId) {
    const node = this.nodes.get(entryId);
    if (!node || !speaks(node)) return [];
    const place = this.placeOf(node);
    if (place === undefined) return [entryId];
    const found = this.saidBelow(place);
    return found.includes(entryId) ? found : [entryId];
  }

  /**
   * Returns the nearest ancestor that says something; null at the beginning; undefined if it is unknown.
   * @param {Node} node
   * @returns {string | null | undefined}
   */
  placeOf(node) {
    let parentId = node.parentId;
    while (parentId !== null) {
      const parent = this.nodes.get(parentId);
      if (!parent) return undefined;
      if (speaks(parent)) return parentId;
      parentId = parent.parentId;
    }
    return null;
  }

  /**
   * Returns the entry itself, or the nearest ancestor that says something.
   * @param {string} entryId
   */
  saidAt(entryId) {
    const node = this.nodes.get(entryId);
    if (!node) return null;
    return speaks(node) ? entryId : this.placeOf(node) ?? null;
  }

  /**
   * Returns the first messages below an entry, skipping entries without content.
   * @param {string | null} entryId null: at the beginning
   * @returns {string[]}
   */
  saidBelow(entryId) {
    const children = entryId === null ? this.roots : this.nodes.get(entryId)?.children ?? [];
    const found = [];
    const open = [...children].reverse();
    for (let id = open.pop(); id !== undefined; id = open.pop()) {
      const node = this.nodes.get(id);
      if (!node) continue;
      if (speaks(node)) found.push(id);
      else open.push(...[...node.children].reverse());
    }
    return found;
  }

  /**
   * Returns the first known entry on the way to this one if neither the beginning of the tree nor an entry of `path` is
   * on that way; otherwise null.
   * @param {string} entryId
   * @param {ReadonlySet<string>} path
   * @returns {Node | null}
   */
  topOf(entryId, path) {
    let node = this.nodes.get(entryId);
    while (node && node.parentId !== null && !path.has(node.entryId)) {
      const parent = this.nodes.get(node.parentId);
      if (!parent) return node;
      node = parent;
    }
    return null;
  }

  /**
   * Returns what was said before at the place where a session at `leafId` would continue.
   * @param {import("./client.js").LeafId} leafId
   * @returns {string[]}
   */
  continuations(leafId) {
    if (leafId === "root") return this.saidBelow(null);
    const leaf = this.nodes.get(leafId);
    if (!leaf) return [];
    const place = speaks(leaf) ? leafId : this.placeOf(leaf);
    return place === undefined ? [] : this.saidBelow(place);
  }

  /**
   * Returns the first entry of a path whose children are not all known.
   * @param {readonly Entry[]} path oldest first
   * @returns {{ rootId: string | null } | null} null: at the beginning of the tree
   */
  unknownOn(path) {
    if (path.length === 0) return null;
    if (path[0].parentId === null && !this.whole) return { rootId: null };
    for (const { entryId } of path) {
      const node = this.nodes.get(entryId);
      if (!node || !this.isComplete(node)) return { rootId: entryId };
    }
    return null;
  }
}

/**
 * Converts an entry to its tree line.
 * @param {Entry} entry
 */
function lineOf(entry) {
  const { entryId, parentId, timestamp } = entry;
  const type = entry.type === "message" ? `message:${entry.role}` : entry.type;
  return { entryId, parentId, type, preview: previewOf(entry), timestamp };
}

/**
 * Returns the beginning of an entry's text, shortened as on the server.
 * @param {Entry} entry
 */
function previewOf(entry) {
  const line = textOf(entry).replace(/\s+/g, " ").trim();
  const chars = Array.from(line.slice(0, 4 * PREVIEW_CHARS));
  return chars.length > PREVIEW_CHARS ? `${chars.slice(0, PREVIEW_CHARS - 1).join("").trimEnd()}…` : chars.join("");
}

/** @param {Entry} entry */
function textOf(entry) {
  switch (entry.type) {
    case "message":
    case "custom_message": return entry.content.map(partText).join(" ");
    case "compaction":
    case "branch_summary": return unmarked(entry.summary);
    case "label": return entry.label ?? "";
    case "session_info": return entry.name;
    case "model_change": return entry.model;
    default: return "";
  }
}

/**
 * Reduces a summary to plain text for one line: headings as `Goal:`, and no tags around the text, as in the server's
 * previews.
 * @param {string} summary
 */
export function unmarked(summary) {
  return untagged(summary).replace(/^[ \t]*#+[ \t]*([^\s#].*?)[ \t]*$/gm, "$1:");
}

/**
 * Removes the tags that a model may have put around a summary.
 * @param {string} summary
 */
export function untagged(summary) {
  return summary.replace(/^[ \t]*<\/?summary>[ \t]*$\n?/gm, "");
}

/** @param {import("reseed-protocol").Part} part */
function partText(part) {
  switch (part.type) {
    case "text": return part.text;
    case "image": return "[picture]";
    case "tool_call": return `${part.name}(${part.arguments})`;
    case "tool_result": return part.output;
    default: return "";
  }
}
