//! A summary without a model: the first lines of messages. It is the step of the fallback chain that cannot fail, and
//! the only one that the offline model has.

use super::serialize::blocks;
use crate::text::clip::{prefix, suffix};
use reseed_protocol::Message;

/// Minimum characters shown of a message; fewer would not show what it was about.
const CHARS_MIN: usize = 80;

/// Returns the beginnings of these messages, oldest first, in at most about `chars_max` characters. If not even short
/// beginnings fit, a third of the room goes to the oldest messages, which introduce the subject, and the rest to the
/// newest.
#[must_use]
pub fn extract<'a>(messages: impl IntoIterator<Item = &'a Message>, chars_max: usize) -> String {
    let blocks: Vec<String> = messages.into_iter().flat_map(blocks).collect();
    if blocks.is_empty() {
        return String::new();
    }
    let chars_each = (chars_max / blocks.len()).max(CHARS_MIN);
    let lines: Vec<String> = blocks.iter().map(|block| beginning(block, chars_each)).collect();
    let chars = |line: &String| line.chars().count() + 1;
    let fits = |left: &mut usize, line: &String| {
        let fits = chars(line) <= *left;
        *left = if fits { *left - chars(line) } else { 0 };
        fits
    };
    let mut left = if lines.iter().map(chars).sum::<usize>() > chars_max { chars_max / 3 } else { 0 };
    let rest = chars_max - left;
    let oldest = lines.iter().take_while(|line| fits(&mut left, line)).count();
    let mut left = left + rest;
    let newest = lines[oldest..].iter().rev().take_while(|line| fits(&mut left, line)).count();
    let shown: Vec<&str> = lines[..oldest].iter().chain(&lines[lines.len() - newest..]).map(String::as_str).collect();
    shown.join("\n")
}

/// Returns the beginning of a block as a list item, cut between words.
fn beginning(block: &str, chars_max: usize) -> String {
    let (head, text) = block.split_once("]: ").unwrap_or(("", block));
    let head = head.trim_start_matches('[');
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let room = chars_max.saturating_sub(head.chars().count() + 5);
    let shown = prefix(&text, room);
    let shown = match shown.len() < text.len() {
        false => shown.to_owned(),
        true => {
            // The cut is between words, if the language uses spaces.
            let cut = shown.rfind(' ').filter(|at| *at * 2 > shown.len()).unwrap_or(shown.len());
            format!("{} …", &shown[..cut])
        }
    };
    match head {
        "" => format!("- {shown}"),
        head => format!("- {head}: {shown}"),
    }
}

/// Shortens a text by omitting lines from its beginning, so that the newest stay.
#[must_use]
pub fn newest_lines(text: &str, chars_max: usize) -> String {
    let mut left = chars_max;
    let fits = |line: &&str| {
        let chars = line.chars().count() + 1;
        let fits = chars <= left;
        left = left.saturating_sub(chars);
        fits
    };
    let mut lines: Vec<&str> = text.trim().lines().rev().take_while(fits).collect();
    lines.reverse();
    if lines.is_empty() {
        // The text is one long paragraph, so its end is kept, starting at a word.
        let end = suffix(text.trim(), chars_max);
        return end.split_once(' ').map_or(end, |(_, rest)| rest).trim().to_owned();
    }
    lines.join("\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use reseed_protocol::{CallId, Part, Role};

    fn said(role: Role, text: &str) -> Message {
        Message::new(role, vec![Part::Text { text: text.to_owned() }])
    }

    #[test]
    fn messages_are_shown_by_their_beginnings() {
        let call_id: CallId = "c1".parse().unwrap();
        let messages = [
            said(
                Role::Assistant,
                "I have read the file, and it holds the list of planks that you asked for.\nPlank 7.",
            ),
            Message::new(Role::Tool, vec![Part::ToolResult { call_id, output: "ok".into(), is_error: false }]),
        ];
        let all = "- Assistant: I have read the file, and it holds the list of planks that you asked for. Plank 7.\n\
                   - Tool result: ok";
        assert_eq!(extract(&messages, 1_000), all);
        let short = extract(&messages, 120);
        assert_eq!(
            short,
            "- Assistant: I have read the file, and it holds the list of planks that you …\n- Tool result: ok"
        );
        assert_eq!(extract(&messages, 30), "- Tool result: ok");
        assert_eq!(extract(&[], 30), "");
    }

    #[test]
    fn an_extract_stays_within_its_limit() {
        let messages: Vec<Message> =
            (0..200).map(|n| said(Role::Assistant, &format!("{n} {}", "猫 ".repeat(n)))).collect();
        for chars_max in [0, 79, 400, 5_000, 100_000] {
            let text = extract(&messages, chars_max);
            assert!(text.chars().count() <= chars_max, "{chars_max}: {}", text.chars().count());
            assert_eq!(!text.is_empty(), chars_max > 0, "{chars_max}");
        }
    }

    #[test]
    fn the_newest_lines_of_a_text_stay() {
        assert_eq!(newest_lines("one\ntwo\nthree", 10), "two\nthree");
        assert_eq!(newest_lines("one\ntwo\nthree and four", 9), "and four");
        assert_eq!(newest_lines("one", 100), "one");
    }
}
