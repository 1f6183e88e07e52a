/** Finds the alternatives at one place of the tree with as few requests as possible. */

import type { EntryId, Tree, TreeNode } from "../wire.js";

/** Tree levels per request: an alternative is rarely below more than a label or two. */
const DEPTH = 4;

/** Entries without content of their own: their children count as being at the place of their parent. */
const QUIET = new Set([
  "label",
  "session_info",
  "custom",
  "model_change",
  "thinking_level_change",
  "foreign",
  "ephemeral",
  "context_transform",
  "branch_summary",
  "compaction",
]);

/** The lookups that the search needs. */
export interface Looking {
  /** Returns an entry's type and parent. */
  readonly entry: (entryId: EntryId) => Promise<{ readonly type: string; readonly parentId: EntryId | null }>;
  /** Fetches a part of the tree. */
  readonly tree: (part: { readonly rootId?: EntryId; readonly depth: number }) => Promise<Tree>;
}

/** Returns what was said at the place of an entry, including itself, in the order in which it was said. */
export async function siblingsOf(entryId: EntryId, { entry, tree }: Looking): Promise<readonly TreeNode[]> {
  let { parentId } = await entry(entryId);
  while (parentId !== null) {
    const parent = await entry(parentId);
    if (!QUIET.has(parent.type)) break;
    ({ parentId } = parent);
  }
  const found: TreeNode[] = [];
  const open: (EntryId | null)[] = [parentId];
  for (let place = open.pop(); place !== undefined; place = open.pop()) {
    const page = await tree(place === null ? { depth: DEPTH } : { rootId: place, depth: DEPTH });
    const children = new Map<EntryId | null, TreeNode[]>();
    for (const node of page.nodes) {
      const of = node.entryId === place ? undefined : node.parentId;
      if (of !== undefined) children.set(of, [...(children.get(of) ?? []), node]);
    }
    const below = [...(children.get(place) ?? [])];
    for (let node = below.pop(); node; node = below.pop()) {
      if (!QUIET.has(node.type)) found.push(node);
      else {
        const known = children.get(node.entryId) ?? [];
        if (known.length === node.childCount) below.push(...known);
        else open.push(node.entryId);
      }
    }
  }
  return found.sort((one, other) => (one.timestamp < other.timestamp ? -1 : one.timestamp > other.timestamp ? 1 : 0));
}
