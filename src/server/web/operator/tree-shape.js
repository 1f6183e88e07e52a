/**
 * The shape of a session's tree: a line for each branch, with the compactions on it.
 *
 * @typedef {Pick<import("reseed-protocol").TreeNode, "entryId" | "parentId" | "type">} Node
 *
 * @typedef {object} Branch
 * @property {number} lane 0 for the one that the session continues from, if it is among them
 * @property {number} fromLane the lane of its parent
 * @property {number} from the depth of its parent
 * @property {number} to the depth of its last entry
 * @property {number[]} compactions their depths
 */

/** Branches that are drawn; a person tells no more apart. */
const LANES_MAX = 40;
const LANE_PIXELS = 16;
const WIDTH = 1000;
const SVG = "http://www.w3.org/2000/svg";

/**
 * Returns the branches of a tree. Pure.
 * @param {readonly Node[]} nodes parents before their children
 * @param {string | null} leafId
 * @returns {{ branches: Branch[], depth: number, hasOwn: boolean }} `hasOwn` is false if the leaf is not among
 * the nodes
 */
export function branchesOf(nodes, leafId) {
  const byId = new Map(nodes.map((node) => [node.entryId, node]));
  const path = new Set();
  for (let id = leafId; id !== null && !path.has(id); id = byId.get(id)?.parentId ?? null) path.add(id);
  // The entry that continues its parent's branch: the one on the path, or else the first.
  const continues = new Map();
  for (const { entryId, parentId } of nodes) if (!continues.has(parentId) || path.has(entryId)) continues.set(parentId, entryId);
  /** @type {Map<string, { branch: Branch, depth: number }>} */
  const places = new Map();
  /** @type {Branch[]} */
  const branches = [];
  for (const { entryId, parentId, type } of nodes) {
    const above = parentId === null ? undefined : places.get(parentId);
    const depth = (above?.depth ?? 0) + 1;
    let branch = continues.get(parentId) === entryId ? above?.branch : undefined;
    if (!branch) branches.push((branch = { lane: 0, fromLane: 0, from: above?.depth ?? 0, to: depth, compactions: [] }));
    if (!path.has(entryId) && branch.lane === 0) branch.lane = branches.length;
    branch.to = depth;
    if (type === "compaction") branch.compactions.push(depth);
    places.set(entryId, { branch, depth });
  }
  // The session's own branch is at the top; the others follow in the order in which they begin.
  const own = (leafId === null ? undefined : places.get(leafId))?.branch;
  const sorted = [...branches].sort((one, other) => Number(other === own) - Number(one === own));
  sorted.forEach((branch, lane) => (branch.lane = lane));
  for (const { entryId, parentId } of nodes) {
    const [here, above] = [places.get(entryId), parentId === null ? undefined : places.get(parentId)];
    if (here && above && here.branch !== above.branch) here.branch.fromLane = above.branch.lane;
  }
  return { branches: sorted, depth: Math.max(0, ...sorted.map(({ to }) => to)), hasOwn: own !== undefined };
}

/**
 * Draws branches.
 * @param {ReturnType<typeof branchesOf>} tree
 * @param {string} label
 */
export function drawShape({ branches, depth, hasOwn }, label) {
  const shown = branches.slice(0, LANES_MAX);
  const height = shown.length * LANE_PIXELS + 6;
  const x = (/** @type {number} */ at) => +(((at + 0.5) / (depth + 1)) * WIDTH).toFixed(1);
  const y = (/** @type {number} */ lane) => lane * LANE_PIXELS + 11;
  const shape = (/** @type {string} */ tag, /** @type {Record<string, string | number>} */ attributes) => {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
    return element;
  };
  const svg = shape("svg", { class: "shape", viewBox: `0 0 ${WIDTH} ${height}`, preserveAspectRatio: "none", height, role: "img", "aria-label": label });
  for (const { lane, fromLane, from, to, compactions } of shown) {
    const fork = lane === fromLane || from === 0 ? `M${x(Math.min(from + 1, to))} ${y(lane)}` : `M${x(from)} ${y(Math.min(fromLane, LANES_MAX))}V${y(lane)}`;
    svg.append(shape("path", { class: lane === 0 && hasOwn ? "branch own" : "branch", d: `${fork}H${x(to)}` }));
    // A line without length, because its cap is not stretched with the drawing.
    for (const at of [...compactions.map((depth) => ({ depth, kind: "compaction" })), { depth: to, kind: "tip" }]) svg.append(shape("path", { class: at.kind, d: `M${x(at.depth)} ${y(lane)}h0` }));
  }
  return svg;
}
