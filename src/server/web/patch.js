/**
 * Patches one DOM tree to look like another with as few changes as possible: unchanged nodes stay the same nodes, so
 * that selection, focus and unfolded details survive.
 */

/** Attributes that the reader changes. */
const READERS = new Set(["open"]);

/**
 * @param {Element} parent
 * @param {ArrayLike<Node>} fresh what the children should be from index `from` on; its nodes may be moved there
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
 * Saves a selection that moving its nodes would end.
 * @param {HTMLElement} within
 * @returns {(() => void) | null} a function that restores it
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
