/**
 * The shape of a session as far as it is known: one line of each entry, from `get_tree`, from pages and from events.
 *
 * What always holds:
 * - a tree only grows, so what arrives twice, late or out of order changes nothing: counts take the larger, lines the
 *   first;
 * - an entry's name is the newest of the log that names it;
 * - nothing here touches the page, the clock or the network.
 *
 * @typedef {import("reseed-protocol").Entry} Entry
 * @typedef {import("reseed-protocol").Tree} TreePage
 *
 * @typedef {object} Node
 * @property {string} entryId
 * @property {string | null} parentId
 * @property {string} type as in `get_tree`: a message's has its role behind it
 * @property {string} preview
 * @property {string} timestamp
 * @property {string[]} children in the order in which they came, as far as they are known
 * @property {number} childCount how many there are; more than `children` where some are not known
 * @property {number} toldAt the last event that `childCount` takes into account
 */

/** Characters of a preview, as the server has it. */
const PREVIEW_CHARS = 80;

/** Entries that say nothing of their own in the chat: a branch is told from another by what comes below them. */
const QUIET = new Set([
  "label", "session_info", "custom", "model_change", "thinking_level_change", "foreign", "ephemeral", "context_transform",
  "branch_summary", "compaction",
]);

/**
 * Whether an entry is something said, and so an alternative to others at the same place.
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
    /** @type {Map<string, string[]>} entries whose parent is not known yet, by that parent */
    this.waiting = new Map();
    /** Whether all roots are known: the whole tree was asked for from its beginning. */
    this.whole = false;
    /** @type {Map<string, { label: string | undefined, at: number }>} names by entry, and the event that told them */
    this.labels = new Map();
    /** Grows with every change, so that views know when to draw anew. */
    this.version = 0;
  }

  /**
   * Takes in an answer to `get_tree`.
   * @param {TreePage} page
   * @param {boolean} fromRoots whether it was asked for without a root
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
   * Takes in a part of a path: how many others hang from its entries is not known.
   * @param {readonly Entry[]} entries oldest first
   */
  addPath(entries) {
    for (const entry of [...entries].reverse()) {
      // Of two names the newer came first here, and an event or a page of the tree knows better.
      if (entry.type === "label" && !this.labels.has(entry.targetId)) this.name(entry.targetId, entry.label, 0);
      if (!this.nodes.has(entry.entryId)) this.add(lineOf(entry));
    }
  }

  /**
   * Takes in an entry that was just appended.
   * @param {Entry} entry
   * @param {number} seq of the event that says so
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
   * Whether all that hangs from an entry is known.
   * @param {Node} node
   */
  isComplete(node) {
    return node.toldAt > 0 && node.children.length >= node.childCount;
  }

  /**
   * What else was said at the place of an entry: it and its alternatives, in the order in which they came. Entries that
   * say nothing, such as names, do not part them.
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
   * The nearest entry above that says something; null for the beginning; undefined where that is not known.
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
   * The entry itself, or the nearest above it that says something.
   * @param {string} entryId
   */
  saidAt(entryId) {
    const node = this.nodes.get(entryId);
    if (!node) return null;
    return speaks(node) ? entryId : this.placeOf(node) ?? null;
  }

  /**
   * The first things said below an entry, whatever says nothing between.
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
   * The first entry that is known on the way to this one, where neither the beginning of the tree nor an entry of
   * `path` is on that way; null where one is.
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
   * Where a session that stands at `leafId` could go on: what was said there and is not on the path.
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
   * The first entry of a path whose surroundings are not all known.
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
 * An entry as the tree has it.
 * @param {Entry} entry
 */
function lineOf(entry) {
  const { entryId, parentId, timestamp } = entry;
  const type = entry.type === "message" ? `message:${entry.role}` : entry.type;
  return { entryId, parentId, type, preview: previewOf(entry), timestamp };
}

/**
 * The beginning of what an entry says, as the server shortens it.
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
 * A summary without its marks, for one line of it: headings as `Goal:`, and no tags around the text, as the server's
 * previews have them.
 * @param {string} summary
 */
export function unmarked(summary) {
  return untagged(summary).replace(/^[ \t]*#+[ \t]*([^\s#].*?)[ \t]*$/gm, "$1:");
}

/**
 * A summary without the tags that a model may have put around it.
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
