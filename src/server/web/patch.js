/**
 * Makes one tree of nodes look like another by changing as little as possible: what stays the same stays the same node,
 * so that a selection in it, its focus and what was unfolded survive.
 */

/** Attributes that a reader changes. */
const READERS = new Set(["open"]);

/**
 * @param {Element} parent
 * @param {ArrayLike<Node>} fresh what its children should be from `from` on; nodes of it may be moved there
 * @param {number} [from]
 */
export function patchChildren(parent, fresh, from = 0) {
  const wanted = Array.from(fresh);
  wanted.forEach((node, index) => {
    const old = parent.childNodes[from + index];
    if (old) patch(old, node);
    else parent.append(node);
  });
  while (parent.childNodes.length > from + wanted.length) parent.lastChild?.remove();
}

/**
 * @param {ChildNode} old
 * @param {Node} fresh
 */
export function patch(old, fresh) {
  if (old instanceof Text && fresh instanceof Text) return patchText(old, fresh.data);
  if (!(old instanceof Element && fresh instanceof Element) || old.nodeName !== fresh.nodeName) return old.replaceWith(fresh);
  for (const name of old.getAttributeNames()) if (!fresh.hasAttribute(name) && !READERS.has(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  patchChildren(old, fresh.childNodes);
}

/**
 * @param {Text} node
 * @param {string} text
 */
function patchText(node, text) {
  const { data } = node;
  if (text === data) return;
  if (text.startsWith(data)) return node.appendData(text.slice(data.length));
  let same = 0;
  while (same < data.length && data[same] === text[same]) same += 1;
  node.replaceData(same, data.length - same, text.slice(same));
}

/**
 * Keeps the selection where a move of its nodes would end it.
 * @param {HTMLElement} within
 * @returns {(() => void) | null} brings it back
 */
export function keepSelection(within) {
  const selected = getSelection();
  if (!selected || selected.isCollapsed) return null;
  const { anchorNode, anchorOffset, focusNode, focusOffset } = selected;
  if (!anchorNode || !focusNode || !(within.contains(anchorNode) || within.contains(focusNode))) return null;
  return () => {
    const fits = (/** @type {Node} */ node, /** @type {number} */ offset) =>
      node.isConnected && offset <= (node instanceof CharacterData ? node.length : node.childNodes.length);
    if (fits(anchorNode, anchorOffset) && fits(focusNode, focusOffset)) selected.setBaseAndExtent(anchorNode, anchorOffset, focusNode, focusOffset);
  };
}
