/** Decodes character references such as `&amp;`: the named ones that models write, and all numeric ones. Pure. */

/** Pairs of a name and its character. HTML defines 2,231 names; these are the ones of everyday texts. */
const PAIRS = `amp & lt < gt > quot " apos '
copy © reg ® trade ™ deg ° plusmn ± times × divide ÷ minus − middot · bull • hellip … prime ′ Prime ″ permil ‰ micro µ
ndash – mdash — lsquo ‘ rsquo ’ sbquo ‚ ldquo “ rdquo ” bdquo „ laquo « raquo » lsaquo ‹ rsaquo › sect § para ¶
dagger † Dagger ‡ iexcl ¡ iquest ¿ ordf ª ordm º sup1 ¹ sup2 ² sup3 ³ frac12 ½ frac14 ¼ frac34 ¾
euro € pound £ yen ¥ cent ¢ curren ¤ not ¬ macr ¯ acute ´ cedil ¸ uml ¨ brvbar ¦ colon : semi ; comma , period . excl ! quest ?
lpar ( rpar ) lsqb [ rsqb ] lbrack [ rbrack ] lcub { rcub } lbrace { rbrace } verbar | vert | bsol \\ sol / num # percnt % ast * lowbar _
dollar $ commat @ plus + equals =
larr ← uarr ↑ rarr → darr ↓ harr ↔ lArr ⇐ rArr ⇒ hArr ⇔ infin ∞ ne ≠ le ≤ ge ≥ asymp ≈ equiv ≡ cong ≅ sim ∼ prop ∝
sum ∑ prod ∏ radic √ int ∫ part ∂ nabla ∇ forall ∀ exist ∃ empty ∅ isin ∈ notin ∉ ni ∋ sub ⊂ sup ⊃ sube ⊆ supe ⊇ cap ∩ cup ∪
and ∧ or ∨ oplus ⊕ otimes ⊗ perp ⊥ ang ∠ there4 ∴ lang ⟨ rang ⟩ lceil ⌈ rceil ⌉ lfloor ⌊ rfloor ⌋ check ✓ cross ✗ star ☆ hearts ♥
alpha α beta β gamma γ delta δ epsilon ε zeta ζ eta η theta θ iota ι kappa κ lambda λ mu μ nu ν xi ξ omicron ο pi π rho ρ
sigma σ sigmaf ς tau τ upsilon υ phi φ chi χ psi ψ omega ω Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ Phi Φ Psi Ψ Omega Ω
Agrave À Aacute Á Acirc Â Atilde Ã Auml Ä Aring Å AElig Æ Ccedil Ç Egrave È Eacute É Ecirc Ê Euml Ë Igrave Ì Iacute Í Icirc Î Iuml Ï
ETH Ð Ntilde Ñ Ograve Ò Oacute Ó Ocirc Ô Otilde Õ Ouml Ö Oslash Ø Ugrave Ù Uacute Ú Ucirc Û Uuml Ü Yacute Ý THORN Þ szlig ß
agrave à aacute á acirc â atilde ã auml ä aring å aelig æ ccedil ç egrave è eacute é ecirc ê euml ë igrave ì iacute í icirc î iuml ï
eth ð ntilde ñ ograve ò oacute ó ocirc ô otilde õ ouml ö oslash ø ugrave ù uacute ú ucirc û uuml ü yacute ý thorn þ yuml ÿ
OElig Œ oelig œ Scaron Š scaron š fnof ƒ circ ˆ tilde ˜ spades ♠ clubs ♣ diams ♦ loz ◊`;

/** @type {Map<string, string>} */
const NAMED = new Map();
const words = PAIRS.split(/[ \n]/);
for (let at = 0; at < words.length; at += 2) NAMED.set(words[at], words[at + 1]);
for (const [name, code] of /** @type {const} */ ([
  ["nbsp", 0xa0], ["shy", 0xad], ["ensp", 0x2002], ["emsp", 0x2003], ["thinsp", 0x2009], ["zwnj", 0x200c], ["zwj", 0x200d],
  ["grave", 0x60], ["Tab", 9], ["NewLine", 10],
])) NAMED.set(name, String.fromCodePoint(code));

const REFERENCE = /&(?:#(\d{1,7})|#[xX]([\da-fA-F]{1,6})|([A-Za-z][A-Za-z\d]{1,31}));/y;
const ALL = new RegExp(REFERENCE.source, "g");

/**
 * Returns the reference at a position of a text, or null if there is no known one.
 * @param {string} text
 * @param {number} at
 * @returns {{ text: string, length: number } | null}
 */
export function referenceAt(text, at) {
  REFERENCE.lastIndex = at;
  const found = REFERENCE.exec(text);
  const meant = found && characterOf(found);
  return found && meant !== null ? { text: meant, length: found[0].length } : null;
}

/**
 * Replaces the references in a text.
 * @param {string} text
 */
export function withoutReferences(text) {
  return text.replace(ALL, (whole, decimal, hex, name) => characterOf([whole, decimal, hex, name]) ?? whole);
}

/**
 * @param {ArrayLike<string | undefined>} found
 * @returns {string | null}
 */
function characterOf({ 1: decimal, 2: hex, 3: name }) {
  if (name) return NAMED.get(name) ?? null;
  const code = decimal ? Number.parseInt(decimal, 10) : Number.parseInt(hex ?? "", 16);
  const isCharacter = code > 0 && code <= 0x10ffff && !(code >= 0xd800 && code <= 0xdfff);
  return isCharacter ? String.fromCodePoint(code) : "\ufffd";
}
