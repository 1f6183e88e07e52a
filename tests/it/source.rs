//! Reads just enough Rust for the house rules: code without comments and literals, without tests, and its paths.

use std::ops::Range;

/// Returns a file's code: comments and literals become spaces, line ends stay.
pub(crate) fn code(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let hidden = hidden_len(rest, code.chars().last());
        let taken = if hidden == 0 { first.len_utf8() } else { hidden };
        let (now, later) = rest.split_at(taken);
        if hidden == 0 {
            code.push(first);
        } else {
            code.extend(now.chars().map(|letter| if letter == '\n' { '\n' } else { ' ' }));
        }
        rest = later;
    }
    code
}

/// Returns the length of the comment or literal that `rest` begins with; 0 if there is none.
fn hidden_len(rest: &str, before: Option<char>) -> usize {
    let until = |end: &str, from: usize| rest[from..].find(end).map_or(rest.len(), |at| from + at + end.len());
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return until("*/", 2);
    }
    let in_word = before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    if rest.starts_with('r') && !in_word {
        let hashes = rest[1..].len() - rest[1..].trim_start_matches('#').len();
        if rest[1 + hashes..].starts_with('"') {
            return until(&format!("\"{}", "#".repeat(hashes)), 2 + hashes);
        }
    }
    let quote = match rest.as_bytes()[0] {
        b'"' => '"',
        // A lifetime has no second quote after its first letter.
        b'\'' if rest[1..].starts_with('\\') || rest.chars().nth(2) == Some('\'') => '\'',
        _ => return 0,
    };
    let mut escaped = false;
    for (at, letter) in rest.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if letter == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Returns the code without items for tests only; the lines stay where they are.
pub(crate) fn without_tests(code: &str) -> String {
    let mut kept = code.to_owned();
    for item in test_items(code).into_iter().rev() {
        let lines = "\n".repeat(code[item.clone()].matches('\n').count());
        kept.replace_range(item, &lines);
    }
    kept
}

/// Returns the items for tests only; the lines stay where they are.
pub(crate) fn only_tests(code: &str) -> String {
    let items = test_items(code);
    let letters = code.char_indices();
    letters
        .map(|(at, letter)| if letter == '\n' || items.iter().any(|item| item.contains(&at)) { letter } else { ' ' })
        .collect()
}

/// Returns the ranges of the items for tests only, attributes included.
pub(crate) fn test_items(code: &str) -> Vec<Range<usize>> {
    let mut items: Vec<Range<usize>> = Vec::new();
    for (start, _) in code.match_indices("#[cfg(test)]") {
        // Skips an item inside another.
        if items.last().is_none_or(|last| last.end <= start) {
            items.push(start..start + item_len(&code[start..]));
        }
    }
    items
}

/// Returns the length of the item that `code` begins with, its attributes included: up to its `;` or the end of its
/// block.
fn item_len(code: &str) -> usize {
    let mut depth = 0_usize;
    for (at, letter) in code.char_indices() {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => {
                depth = depth.saturating_sub(1);
                if letter == '}' && depth == 0 {
                    return at + 1;
                }
            }
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// Returns the words of the code, with their ranges.
pub(crate) fn words(code: &str) -> Vec<(&str, Range<usize>)> {
    let mut words = Vec::new();
    let mut start = None;
    for (at, letter) in code.char_indices().chain([(code.len(), ' ')]) {
        let inside = letter.is_alphanumeric() || letter == '_';
        match start {
            None if inside => start = Some(at),
            Some(from) if !inside => {
                words.push((&code[from..at], from..at));
                start = None;
            }
            _ => {}
        }
    }
    words
}

/// Returns every path that the code names, with the branches of its groups: `a::{b::c, d}` is `a::b::c` and `a::d`.
pub(crate) fn paths(code: &str) -> Vec<Vec<String>> {
    let words = words(code);
    let mut found = Vec::new();
    // The current path, and the length of the path at each open group.
    let (mut path, mut groups): (Vec<String>, Vec<usize>) = (Vec::new(), Vec::new());
    for (index, (word, place)) in words.iter().enumerate() {
        path.push((*word).to_owned());
        let next = words.get(index + 1).map_or(code.len(), |(_, next)| next.start);
        let between: String = code[place.end..next].split_whitespace().collect();
        if between == "::" {
            continue;
        }
        if between == "::{" {
            groups.push(path.len());
            continue;
        }
        if path.len() > 1 {
            found.push(path.clone());
        }
        for letter in between.chars() {
            match letter {
                '{' if !groups.is_empty() => groups.push(groups[groups.len() - 1]),
                '}' => drop(groups.pop()),
                ';' => groups.clear(),
                _ => {}
            }
        }
        path.truncate(groups.last().copied().unwrap_or(0));
        if between.ends_with("::{") || between.ends_with("::") {
            // The code is of the form `<T as Trait>::name`: what follows is no path of its own.
            path.clear();
        }
    }
    found
}
