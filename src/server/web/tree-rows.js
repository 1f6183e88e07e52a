/**
 * Lays out the tree as rows, like the graph of a version history. Pure.
 *
 * Each entry that a reader should see is a row. An entry's main child continues in the same lane. The other branches
 * come before it, one lane further to the right, so that every lane to the left of a row is a line that passes by.
 * Stretches without forks are folded.
 *
 * @typedef {import("./tree.js").SessionTree} SessionTree
 * @typedef {import("./tree.js").Node} Node
 *
 * @typedef {object} Row
 * @property {"entry" | "folded" | "more"} kind an entry, folded entries, or unknown children
 * @property {string} key identifies the row
 * @property {Node} node the entry; for the other kinds, the one above
 * @property {number} lane 0 is the leftmost
 * @property {boolean} begins whether it starts a branch beside the lane to its left
 * @property {boolean} above whether a line enters from above in its own lane
 * @property {boolean} below whether a line leaves downwards in its own lane
 * @property {boolean} onPath whether it is on the path to the leaf
 * @property {boolean} isLeaf whether the session continues from here
 * @property {boolean[]} passing for each lane to the left, whether the passing line is on the path to the leaf
 * @property {string[]} entryIds the entries folded here
 * @property {number} count number of folded or unknown entries
 */

/** Entries without a row: their content appears in the chat, beside another entry, or nowhere. */
const HIDDEN = new Set([
  "label", "session_info", "custom", "model_change", "thinking_level_change", "foreign", "ephemeral", "context_transform",
]);
/** Entries shown at each end of a stretch without forks while its middle is folded. */
const ENDS_SHOWN = 3;
/** Folding fewer entries than this is not worthwhile. */
const FOLDED_MIN = 5;

/** @typedef {{ start: Node, lane: number, begins: boolean, continues: boolean, passing: boolean[] }} Chain */

/**
 * @param {SessionTree} tree
 * @param {import("./client.js").LeafId} leafId
 * @param {ReadonlySet<string>} unfolded keys of folded rows that were opened
 * @returns {Row[]}
 */
export function treeRows(tree, leafId, unfolded) {
  /** @type {Set<string>} */
  const path = new Set();
  for (let node = tree.nodes.get(leafId); node; node = tree.nodes.get(node.parentId ?? "root")) path.add(node.entryId);
  const shownLeaf = shownAbove(tree, leafId);
  const tops = [...tree.roots, ...[...tree.waiting.values()].flat()];
  const starts = tops.flatMap((id) => shownFrom(tree, id));
  const main = mainOf(starts, path);
  /** @type {Chain[]} what remains to be drawn, next one last */
  const open = starts.filter((start) => start !== main).toReversed().map((start) => chainOf(start));
  // The session's own branch comes last, closest to where it continues.
  if (main) open.unshift(chainOf(main));
  /** @type {Row[]} */
  const rows = [];
  for (let chain = open.pop(); chain; chain = open.pop()) {
    const { lane, passing } = chain;
    /** @type {Node | undefined} */
    let node = chain.start;
    for (let first = true; node; first = false) {
      const children = node.children.flatMap((id) => shownFrom(tree, id));
      /** @type {Node | undefined} */
      const next = mainOf(children, path);
      const unknown = unknownBelow(tree, node);
      const row = { key: node.entryId, node, lane, passing, entryIds: [], count: 0, onPath: path.has(node.entryId) };
      rows.push({
        ...row, kind: "entry", isLeaf: node === shownLeaf, begins: first && chain.begins, above: !first || chain.continues,
        below: next !== undefined || unknown > 0,
      });
      if (unknown > 0) {
        const onPath = next !== undefined && path.has(next.entryId);
        rows.push({
          ...row, kind: "more", key: `more-${node.entryId}`, isLeaf: false, begins: false, above: true,
          below: next !== undefined, onPath, count: unknown,
        });
      }
      const sides = children.filter((child) => child !== next);
      if (next && sides.length > 0) {
        // The rest of this lane is drawn after the branches beside it.
        open.push({ ...chainOf(next), lane, continues: true, passing });
        const beside = [...passing, path.has(next.entryId)];
        for (const side of sides.toReversed()) open.push({ ...chainOf(side), lane: lane + 1, begins: true, passing: beside });
        break;
      }
      node = next;
    }
  }
  return folded(rows, tree, unfolded);
}

/**
 * @param {Node} start
 * @returns {Chain}
 */
function chainOf(start) {
  return { start, lane: 0, begins: false, continues: false, passing: [] };
}

/**
 * Returns the child that continues in its parent's lane: the one on the path, or else the newest.
 * @param {Node[]} children
 * @param {ReadonlySet<string>} path
 */
function mainOf(children, path) {
  return children.find((child) => path.has(child.entryId)) ?? children.at(-1);
}

/**
 * Returns the entry itself or, if it has no row, the nearest entries below it that do.
 * @param {SessionTree} tree
 * @param {string} entryId
 * @returns {Node[]}
 */
function shownFrom(tree, entryId) {
  const found = [];
  const open = [entryId];
  for (let id = open.pop(); id !== undefined; id = open.pop()) {
    const node = tree.nodes.get(id);
    if (!node) continue;
    if (HIDDEN.has(node.type)) open.push(...node.children.toReversed());
    else found.push(node);
  }
  return found;
}

/**
 * Returns the entry whose row stands for this entry.
 * @param {SessionTree} tree
 * @param {import("./client.js").LeafId} entryId
 */
export function shownAbove(tree, entryId) {
  let node = tree.nodes.get(entryId);
  while (node && HIDDEN.has(node.type)) node = node.parentId === null ? undefined : tree.nodes.get(node.parentId);
  return node;
}

/**
 * Counts the unknown children of an entry and of the hidden entries below it.
 * @param {SessionTree} tree
 * @param {Node} above
 */
function unknownBelow(tree, above) {
  let count = 0;
  const open = [above];
  for (let node = open.pop(); node; node = open.pop()) {
    count += node.childCount - node.children.length;
    for (const id of node.children) {
      const child = tree.nodes.get(id);
      if (child && HIDDEN.has(child.type)) open.push(child);
    }
  }
  return count;
}

/**
 * Folds the middle of each long stretch into one row.
 * @param {Row[]} rows
 * @param {SessionTree} tree
 * @param {ReadonlySet<string>} unfolded
 */
function folded(rows, tree, unfolded) {
  const plain = (/** @type {Row} */ row) => row.kind === "entry" && !row.isLeaf && !row.begins && row.above && row.below
    && (row.node.type.startsWith("message:") || row.node.type === "custom_message") && !tree.labelOf(row.node.entryId);
  /** @type {Row[]} */
  const out = [];
  let at = 0;
  while (at < rows.length) {
    let end = at;
    while (end < rows.length && plain(rows[end]) && rows[end].lane === rows[at].lane && rows[end].onPath === rows[at].onPath) end += 1;
    const middle = rows.slice(at + ENDS_SHOWN, Math.max(at + ENDS_SHOWN, end - ENDS_SHOWN));
    const key = `folded-${middle[0]?.key}`;
    if (middle.length < FOLDED_MIN || unfolded.has(key)) {
      out.push(...rows.slice(at, Math.max(end, at + 1)));
    } else {
      out.push(...rows.slice(at, at + ENDS_SHOWN));
      out.push({ ...middle[0], kind: "folded", key, entryIds: middle.map((row) => row.node.entryId), count: middle.length });
      out.push(...rows.slice(end - ENDS_SHOWN, end));
    }
    at = Math.max(end, at + 1);
  }
  return out;
}
