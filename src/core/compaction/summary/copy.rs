//! Recognises a summary that merely copies the conversation.

/// The number of characters compared at once: more than a passing quotation has.
const PIECE_CHARS: usize = 200;
/// The number of consecutive equal pieces that no ordinary quotation reaches.
const PIECES_MIN: usize = 6;

/// Returns true if at least half of a summary is one verbatim stretch of the conversation (the blocks of the request).
pub(super) fn is_copy(summary: &str, blocks: &[&str]) -> bool {
    let summary = spaced(&[summary]);
    let chars: Vec<char> = summary.chars().collect();
    let pieces: Vec<String> = chars.chunks_exact(PIECE_CHARS).map(|piece| piece.iter().collect()).collect();
    if pieces.len() < PIECES_MIN {
        return false;
    }
    let told = spaced(blocks);
    let is_told = |piece: &String| told.contains(piece.as_str());
    // A stretch of half of the pieces contains one of the two middle ones. For most summaries, no other piece needs to
    // be searched for.
    let middle = pieces.len() / 2;
    if !is_told(&pieces[middle]) && !is_told(&pieces[middle - 1]) {
        return false;
    }
    let pieces: Vec<bool> = pieces.iter().map(is_told).collect();
    let longest = pieces.chunk_by(|a, b| a == b).filter(|run| run[0]).map(<[bool]>::len).max().unwrap_or(0);
    longest >= PIECES_MIN && longest * 2 >= pieces.len()
}

/// Joins texts with single spaces between words and without escapes.
fn spaced(texts: &[&str]) -> String {
    let mut spaced = String::with_capacity(texts.iter().map(|text| text.len() + 1).sum());
    for word in texts.iter().flat_map(|text| text.split_whitespace()) {
        word.split('\\').for_each(|part| spaced.push_str(part));
        spaced.push(' ');
    }
    spaced
}

#[cfg(test)]
mod tests {
    use super::is_copy;

    #[test]
    fn a_copy_is_distinguished_from_a_quotation() {
        let said: String =
            (0..120).map(|n| format!("Sentence number {n} tells of plank {} and nail {}. ", n * 7, n * 3)).collect();
        let quoted = format!("[User]: {said}");
        let blocks = [quoted.as_str(), "[Assistant]: Well, that is a lot of planks."];
        let lines: Vec<&str> = said.split_inclusive(". ").collect();
        let listed: String = lines.iter().map(|line| format!("- {line}\n")).collect();
        for (summary, expected) in [
            (said.clone(), true),
            (format!("## Goal\n- {said}\n## Progress\n- none"), true),
            (blocks.join("\n"), true),
            (listed, false),
            (format!("- Quoted: {}\n", lines[..12].concat()), false),
            ("- the user has planks and nails".to_owned(), false),
            (String::new(), false),
        ] {
            assert_eq!(is_copy(&summary, &blocks), expected, "{}", summary.chars().take(60).collect::<String>());
        }
    }
}
