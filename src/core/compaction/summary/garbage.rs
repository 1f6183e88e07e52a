//! Detects answers that have the form of a summary but are none: refusals, endless repetition, copies of the
//! conversation.
//!
//! A good summary that mentions an apology, lists a hundred files or quotes a paragraph must pass: each check looks at
//! most of the text, never at a single word.

use crate::core::text::{
    sections::{item_text, says_nothing},
    words::{Words, pieces},
};
use std::collections::BTreeSet;

/// Beginnings of refusals, and phrases of which one must follow soon; lower case, with straight apostrophes.
const REFUSALS: [(&[&str], &[&str]); 12] = [
    (
        &[
            "i'm sorry",
            "i am sorry",
            "sorry,",
            "sorry but",
            "i apologize",
            "i apologise",
            "unfortunately, i",
            "i'm afraid",
        ],
        &["can't", "cannot", "can not", "unable", "not able", "won't", "decline"],
    ),
    (
        &[
            "i can't",
            "i cannot",
            "i can not",
            "i'm unable",
            "i am unable",
            "i'm not able",
            "i am not able",
            "i won't",
            "i must decline",
        ],
        &[
            "help",
            "assist",
            "comply",
            "provide",
            "summar",
            "fulfil",
            "do that",
            "do this",
            "with that",
            "with this",
            "engage",
            "produce",
            "continue",
        ],
    ),
    (
        &["as an ai", "as a language model", "as a large language model"],
        &[" i ", "can't", "cannot", "unable", "not able"],
    ),
    (&["es tut mir leid", "tut mir leid", "leider kann ich", "ich kann dabei nicht", "als ki"], &["nicht", "kein"]),
    (
        &["je suis désolé", "désolé", "je ne peux pas", "en tant qu'ia", "en tant que modèle"],
        &["peux pas", "ne puis", "pas en mesure", "aider"],
    ),
    (&["lo siento", "no puedo", "como ia", "como modelo de lenguaje"], &["no puedo", "ayudar", "cumplir", "resum"]),
    (&["mi dispiace", "non posso"], &["non posso", "aiutar", "riassum"]),
    (&["desculpe", "sinto muito", "lamento", "não posso"], &["não posso", "ajudar", "resum"]),
    (
        &["抱歉", "很抱歉", "对不起", "對不起", "我无法", "我不能", "作为一个人工智能", "作为ai", "作为一个ai"],
        &["无法", "不能", "無法", "不便"],
    ),
    (&["申し訳", "すみません", "ごめんなさい"], &["できません", "できない", "いたしかねます", "お手伝い"]),
    (&["죄송"], &["없습니다", "어렵습니다", "수 없"]),
    (&["извините", "простите", "к сожалению, я", "я не могу"], &["не могу", "не могла", "помочь", "выполнить"]),
];
/// Characters from the beginning within which the rest of a refusal must follow.
const REFUSAL_CHARS: usize = 160;
/// Maximum characters of a text that is a refusal as a whole.
const REFUSAL_TEXT_CHARS_MAX: usize = 800;

/// Minimum lines of a repetitive text, and how often each of them occurs on average.
const REPEATED_LINES: (usize, usize) = (10, 3);
/// Minimum words to check phrases, and the minimum percentage of distinct four-word phrases.
const PHRASES: (usize, usize) = (60, 25);
/// A run of one letter longer than this is neither a word nor a number.
const SAME_LETTER_MAX: usize = 200;
/// Minimum letters and digits to check variety, and the minimum number of distinct ones.
const VARIETY: (usize, usize) = (400, 6);

/// Minimum characters of one copied piece, beyond any quotation, and the minimum percentage of the summary that it
/// makes up.
const COPIED: (usize, usize) = (1_200, 50);
/// Number of consecutive words that start a copied passage.
const SHINGLE: usize = 4;
/// Minimum block heads of a summary that is a transcript, and their minimum percentage of its lines.
const HEADS: (usize, usize) = (3, 30);

/// Returns true if most of these lines refuse to summarise.
pub(super) fn refuses<'a>(lines: impl Iterator<Item = &'a str>) -> bool {
    let (mut all, mut refusing) = (0, 0);
    for line in lines.filter(|line| !says_nothing(line)) {
        all += 1;
        refusing += usize::from(is_refusal(line));
    }
    refusing * 2 > all
}

/// Returns true if a text of any form is a refusal: short, and refusing from the start.
pub(super) fn is_refusal_text(text: &str) -> bool {
    text.chars().count() <= REFUSAL_TEXT_CHARS_MAX
        && text.lines().find(|line| !says_nothing(line)).is_some_and(is_refusal)
}

fn is_refusal(line: &str) -> bool {
    let line: String = item_text(line).chars().take(REFUSAL_CHARS).flat_map(char::to_lowercase).collect();
    let line = line.replace(['’', '‘'], "'");
    REFUSALS.iter().any(|(begins, follows)| {
        begins.iter().any(|begin| line.starts_with(begin)) && follows.iter().any(|follow| line.contains(follow))
    })
}

/// Returns true if a text repeats itself endlessly, or has too little variety to be language.
pub(super) fn repeats(text: &str) -> bool {
    let lines: Vec<&str> =
        text.lines().map(str::trim).filter(|line| !line.starts_with('#') && !says_nothing(line)).collect();
    let distinct = lines.iter().collect::<BTreeSet<_>>().len();
    if lines.len() >= REPEATED_LINES.0 && distinct * REPEATED_LINES.1 <= lines.len() {
        return true;
    }
    let words = Words::of(&lines.join("\n"));
    let words = words.list();
    if words.len() >= PHRASES.0 {
        let phrases = words.windows(4).collect::<BTreeSet<_>>().len();
        if phrases * 100 < words.len() * PHRASES.1 {
            return true;
        }
    }
    let letters: Vec<char> = text.chars().filter(|c| c.is_alphanumeric()).collect();
    let run = letters.chunk_by(|a, b| a == b).map(<[char]>::len).max().unwrap_or(0);
    let variety = || letters.iter().collect::<BTreeSet<_>>().len();
    run > SAME_LETTER_MAX || letters.len() >= VARIETY.0 && variety() < VARIETY.1
}

/// Returns true if a summary is the conversation itself, as a whole or in one long piece.
pub(super) fn is_copy(summary: &str, blocks: &[&str]) -> bool {
    let lines: Vec<&str> = summary.lines().filter(|line| !line.starts_with('#') && !says_nothing(line)).collect();
    let heads = lines.iter().filter(|line| item_text(line).starts_with('[') && is_block_head(line)).count();
    if heads >= HEADS.0 && heads * 100 >= lines.len() * HEADS.1 {
        return true;
    }
    let said: Vec<&str> = pieces(summary).map(|(_, piece)| piece).collect();
    let places = places(&said, blocks);
    let chars = |said: &[&str]| said.iter().map(|piece| piece.chars().count() + 1).sum::<usize>();
    let (mut at, mut longest) = (0, 0);
    while at + SHINGLE <= said.len() {
        let same = places[at].map_or(0, |place| {
            said[at..].iter().zip(place.pieces(blocks)).take_while(|(said, source)| **said == *source).count()
        });
        // Another run may have the same hash.
        if same < SHINGLE {
            at += 1;
            continue;
        }
        longest = longest.max(chars(&said[at..at + same]));
        at += same;
    }
    longest >= COPIED.0 && longest * 100 >= chars(&said) * COPIED.1
}

/// The position of a word in the conversation.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    block: usize,
    byte: usize,
}

impl Place {
    /// Iterates over the words from this one on.
    fn pieces<'a>(self, blocks: &[&'a str]) -> impl Iterator<Item = &'a str> {
        let from = move |nth: usize| if nth == 0 { self.byte } else { 0 };
        let rest = blocks.iter().skip(self.block).enumerate();
        rest.flat_map(move |(nth, block)| pieces(&block[from(nth)..])).map(|(_, piece)| piece)
    }
}

/// Bits of the filter before the search: a conversation has many words, few of which are in its summary.
const FILTER_BITS: u64 = 1 << 16;

/// Returns, for each shingle of a summary, its first possible position in the conversation. Shingles are compared by
/// hash, and only the summary's are stored: the work is one pass over the conversation.
fn places(said: &[&str], blocks: &[&str]) -> Vec<Option<Place>> {
    let hashes: Vec<u64> = said.iter().map(|piece| hash(piece)).collect();
    let wanted: Vec<u64> = hashes.windows(SHINGLE).map(|run| shingle(run.iter().copied())).collect();
    let mut first: Vec<(u64, Option<Place>)> = wanted.iter().map(|hash| (*hash, None)).collect();
    first.sort_unstable_by_key(|(hash, _)| *hash);
    first.dedup_by_key(|(hash, _)| *hash);
    let bit = |hash: u64| {
        let bit = hash % FILTER_BITS;
        (usize::try_from(bit / 64).unwrap_or(0), 1_u64 << (bit % 64))
    };
    let mut filter = vec![0_u64; usize::try_from(FILTER_BITS / 64).unwrap_or(0)];
    for (word, mask) in wanted.iter().map(|hash| bit(*hash)) {
        filter[word] |= mask;
    }
    // The last words, the newest at the end; as many as a shingle has, once there are so many.
    let mut last = [(0, Place::default()); SHINGLE];
    let mut seen = 0;
    for (block, text) in blocks.iter().enumerate() {
        for (byte, piece) in pieces(text) {
            last.rotate_left(1);
            last[SHINGLE - 1] = (hash(piece), Place { block, byte });
            seen += 1;
            let run = shingle(last.iter().map(|(hash, _)| *hash));
            let (word, mask) = bit(run);
            if filter[word] & mask != 0
                && seen >= SHINGLE
                && let Ok(found) = first.binary_search_by_key(&run, |(wanted, _)| *wanted)
            {
                first[found].1.get_or_insert(last[0].1);
            }
        }
    }
    let place = |hash: &u64| {
        let found = first.binary_search_by_key(hash, |(wanted, _)| *wanted).ok()?;
        first[found].1
    };
    wanted.iter().map(place).collect()
}

fn mix(hash: u64, more: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    (hash ^ more).wrapping_mul(ODD).rotate_left(29)
}

/// Returns the hash of a word.
fn hash(piece: &str) -> u64 {
    let (eights, rest) = piece.as_bytes().as_chunks::<8>();
    let hash = eights.iter().fold(piece.len() as u64, |hash, eight| mix(hash, u64::from_le_bytes(*eight)));
    mix(hash, rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)))
}

/// Returns the hash of a run of [`SHINGLE`] words, given theirs.
fn shingle(hashes: impl Iterator<Item = u64>) -> u64 {
    hashes.fold(0, mix)
}

fn is_block_head(line: &str) -> bool {
    let line = item_text(line).replace('\\', "");
    ["[User]:", "[Assistant]:", "[Assistant thinking]:", "[Tool call]:", "[Tool result]:", "[Tool error]:"]
        .iter()
        .any(|head| line.starts_with(head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_from_summaries_that_mention_one() {
        for (line, expected) in [
            ("I'm sorry, but I can't help with that.", true),
            ("- I’m sorry, I cannot summarise this conversation", true),
            ("As an AI language model, I cannot read this.", true),
            ("I cannot assist with this request.", true),
            ("I am unable to provide a summary.", true),
            ("Es tut mir leid, das kann ich nicht.", true),
            ("Je suis désolé, je ne peux pas vous aider.", true),
            ("Lo siento, no puedo ayudar con eso.", true),
            ("抱歉，我无法完成这个请求。", true),
            ("申し訳ありませんが、お手伝いできません。", true),
            ("Извините, я не могу помочь.", true),
            ("- User: I'm sorry that I was late", false),
            ("- The assistant said: I'm sorry, I can't do that", false),
            ("- I cannot work on Mondays", false),
            ("- I'm sorry about the noise, said Ann", false),
            ("- As an aide-memoire: the port is 8443", false),
            ("- Désolé is the name of the band", false),
        ] {
            assert_eq!(is_refusal(line), expected, "{line}");
        }
        assert!(refuses(["- none", "- I'm sorry, I can't help with that", "- As an AI I cannot"].into_iter()));
        assert!(!refuses(["- I'm sorry, I can't help with that", "- the port is 8443"].into_iter()));
        assert!(!refuses(["- none"].into_iter()));
    }

    #[test]
    fn repetition_is_told_from_lists() {
        for (text, expected) in [
            ("the same line again\n".repeat(40), true),
            ("and then and then ".repeat(60), true),
            ("a".repeat(300), true),
            ("ab ba bab ".repeat(100), true),
            ("重复重复".repeat(100), true),
            ((0..200).map(|n| format!("- src/part_{n}.rs is done\n")).collect(), false),
            ("- none\n## Goal\n".repeat(40), false),
            (include_str!("garbage.rs").to_owned(), false),
            (String::new(), false),
            ("yes ".repeat(20), false),
        ] {
            assert_eq!(repeats(&text), expected, "{}", text.chars().take(60).collect::<String>());
        }
    }

    #[test]
    fn a_copy_is_told_from_a_quotation() {
        let said: String =
            (0..120).map(|n| format!("Sentence number {n} tells of plank {} and nail {}. ", n * 7, n * 3)).collect();
        let quoted = format!("[User]: {said}");
        let blocks = [quoted.as_str(), "[Assistant]: Well, that is a lot of planks."];
        let lines: Vec<&str> = said.split_inclusive(". ").collect();
        let extracted: String = lines.iter().map(|line| format!("- User: {line}\n")).collect();
        for (summary, expected) in [
            (said.clone(), true),
            (format!("## Goal\n- {said}\n## Progress\n- none"), true),
            (blocks.join("\n"), true),
            ("[User]: a\n[Assistant]: b\n- [User]: c\n".to_owned(), true),
            (extracted, false),
            (format!("- Quoted: {}\n", lines[..12].concat()), false),
            ("- the user has planks and nails".to_owned(), false),
            (String::new(), false),
        ] {
            assert_eq!(is_copy(&summary, &blocks), expected, "{}", summary.chars().take(60).collect::<String>());
        }
    }
}
