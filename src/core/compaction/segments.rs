//! The segments of a summary. Each holds what the user said in a stretch of the session, word for word, and what the
//! model wrote about the rest of it.
//!
//! Invariants:
//! - a segment is not changed until it is merged, so its bytes stay in the provider's cache;
//! - the user's messages stay in order; the first always stays, and of the others the newest stay longest. Only the
//!   room decides which are omitted, never their content;
//! - [`read`] returns what [`write`] wrote.

mod arrange;
mod room;

pub use arrange::{Arranged, arrange};
pub use room::Room;

use crate::text::{clean::clean, clip::head_and_tail, files::strip_files};
use reseed_protocol::{
    EntryId, Message, Part,
    compaction::{Compaction, SaidByUser, SummarySegment},
};
use std::fmt::Write as _;

const SAID: &str = "What the user said, word for word:";

const DONE: &str = "What was answered and done:";

const BETWEEN: &str = "\n\n---\n\n";

/// One message may take at most one part in this many of the room for the user's words.
const MESSAGE_PART: u64 = 4;

/// Minimum tokens that one of the user's messages may take: a paragraph.
const MESSAGE_TOKENS_MIN: u64 = 160;

/// Characters per token in the first attempt to shorten a message. While it is still too long, a quarter is removed
/// again.
const CHARS_PER_TOKEN: u64 = 4;

/// One segment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Segment {
    /// The user's messages, oldest first.
    pub said: Vec<Said>,
    /// What the model, or the server by rule, wrote about the rest.
    pub text: String,
}

/// A message of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Its entry; `None` for a constraint that an older version had recorded.
    pub entry_id: Option<EntryId>,
    /// Its text.
    pub text: String,
}

impl Said {
    /// Returns the text of a message, without data that only programs read, and whether it is complete. It is cut in
    /// its middle if it takes more than its part of the room, or more than half of what may stay of the newly removed
    /// words (`new_tokens_max`). Returns `None` if it has no text.
    #[must_use]
    pub fn of(
        id: Option<&EntryId>,
        message: &Message,
        room: &Room,
        (new_tokens_max, count): (u64, &dyn Fn(&str) -> u64),
    ) -> Option<(Self, bool)> {
        let mut text = String::new();
        for part in &message.content {
            let said = match part {
                Part::Text { text } => text.trim(),
                Part::Image { .. } => "(an image)",
                _ => continue,
            };
            if !text.is_empty() && !said.is_empty() {
                text.push('\n');
            }
            text.push_str(said);
        }
        let text = clean(&text).trim().to_owned();
        if text.is_empty() {
            return None;
        }
        let tokens_max = (room.said_tokens / MESSAGE_PART).min(new_tokens_max / 2).max(MESSAGE_TOKENS_MIN);
        let short = shortened(&text, tokens_max, id.filter(|_| room.shows_ids), count);
        let is_whole = short.is_none();
        Some((Self { entry_id: id.cloned(), text: short.unwrap_or(text) }, is_whole))
    }

    pub(super) fn mark(&self, shows_ids: bool) -> String {
        match &self.entry_id {
            Some(id) if shows_ids => format!("[{id}] "),
            _ => "- ".to_owned(),
        }
    }
}

/// Cuts a long text in its middle, with a note about the omitted part and how to read it; `None` if it is short enough.
fn shortened(text: &str, tokens_max: u64, id: Option<&EntryId>, count: &dyn Fn(&str) -> u64) -> Option<String> {
    // A token has at least one byte, so most texts need not be counted.
    if text.len() as u64 <= tokens_max || count(text) <= tokens_max {
        return None;
    }
    let mut chars = tokens_max * CHARS_PER_TOKEN;
    loop {
        let Some((head, tail, left_out)) = head_and_tail(text, usize::try_from(chars).unwrap_or(usize::MAX)) else {
            chars -= chars.div_ceil(4);
            continue;
        };
        let how = id.map(|id| format!("; history_read with the id {id} shows them")).unwrap_or_default();
        let cut = format!("{}\n[… {left_out} characters left out{how} …]\n{}", head.trim_end(), tail.trim_start());
        if count(&cut) <= tokens_max || chars <= MESSAGE_TOKENS_MIN {
            return Some(cut);
        }
        chars -= chars.div_ceil(4);
    }
}

impl Segment {
    fn render(&self, shows_ids: bool) -> (String, SummarySegment) {
        let mut text = String::new();
        let mut said = Vec::with_capacity(self.said.len());
        if !self.said.is_empty() {
            text.push_str(SAID);
        }
        for of in &self.said {
            let _ = write!(text, "\n{}{}", of.mark(shows_ids), of.text);
            said.push(SaidByUser { entry_id: of.entry_id.clone(), bytes: of.text.len() as u64 });
        }
        if !self.said.is_empty() && !self.text.is_empty() {
            let _ = write!(text, "\n\n{DONE}\n");
        }
        text.push_str(&self.text);
        let bytes = text.len() as u64;
        (text, SummarySegment { bytes, said })
    }

    fn parse(text: &str, segment: &SummarySegment) -> Option<Self> {
        let mut said = Vec::with_capacity(segment.said.len());
        let mut rest = if segment.said.is_empty() { text } else { text.strip_prefix(SAID)? };
        for of in &segment.said {
            rest = rest.strip_prefix('\n')?;
            let marked = of.entry_id.as_ref().and_then(|id| rest.strip_prefix(&format!("[{id}] ")));
            rest = marked.or_else(|| rest.strip_prefix("- "))?;
            let (text, after) = rest.split_at_checked(usize::try_from(of.bytes).ok()?)?;
            said.push(Said { entry_id: of.entry_id.clone(), text: text.to_owned() });
            rest = after;
        }
        if !said.is_empty() && !rest.is_empty() {
            rest = rest.strip_prefix("\n\n")?.strip_prefix(DONE)?.strip_prefix('\n')?;
        }
        Some(Self { said, text: rest.to_owned() })
    }
}

/// Returns the text of these segments, and the position of each in it.
#[must_use]
pub fn write(segments: &[Segment], shows_ids: bool) -> (String, Vec<SummarySegment>) {
    let rendered: Vec<_> = segments.iter().map(|segment| segment.render(shows_ids)).collect();
    let text = rendered.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>().join(BETWEEN);
    (text, rendered.into_iter().map(|(_, segment)| segment).collect())
}

/// Returns the segments of a compaction's summary as the model sees it (`whole`), without its file lists. A summary
/// without segments, or one that was changed since, is a single segment.
#[must_use]
pub fn read(compaction: Option<&Compaction>, whole: &str) -> Vec<Segment> {
    // The lengths are those of the summary as it was written; in the context it appears without invisible characters.
    let written = compaction.filter(|compaction| clean(&compaction.summary).trim() == whole.trim());
    let segments = written.and_then(|compaction| parse(&compaction.summary, &compaction.segments));
    segments.unwrap_or_else(|| match strip_files(whole) {
        "" => Vec::new(),
        text => vec![Segment { said: Vec::new(), text: text.to_owned() }],
    })
}

fn parse(whole: &str, segments: &[SummarySegment]) -> Option<Vec<Segment>> {
    if segments.is_empty() {
        return None;
    }
    let mut rest = whole;
    let mut parsed = Vec::with_capacity(segments.len());
    for (at, segment) in segments.iter().enumerate() {
        if at > 0 {
            rest = rest.strip_prefix(BETWEEN)?;
        }
        let (text, after) = rest.split_at_checked(usize::try_from(segment.bytes).ok()?)?;
        parsed.push(Segment::parse(text, segment)?);
        rest = after;
    }
    strip_files(rest).is_empty().then_some(parsed)
}

/// Returns who speaks after this line of a summary, if the line says so: true for the user.
#[must_use]
pub fn speaker(line: &str) -> Option<bool> {
    match line {
        SAID => Some(true),
        DONE | "---" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use reseed_protocol::compaction::SummaryMode;

    fn id(name: &str) -> EntryId {
        name.parse().unwrap()
    }

    fn said(name: &str, text: &str) -> Said {
        Said { entry_id: Some(id(name)), text: text.to_owned() }
    }

    fn room(said_tokens: u64, text_tokens: u64) -> Room {
        Room {
            said_tokens,
            text_tokens,
            all_tokens: said_tokens + text_tokens,
            new_tokens: 10,
            mode: SummaryMode::Segments,
            shows_ids: true,
        }
    }

    /// Counts words.
    fn words(text: &str) -> u64 {
        text.split_whitespace().count() as u64
    }

    fn compaction(segments: &[Segment], shows_ids: bool) -> Compaction {
        let (summary, segments) = write(segments, shows_ids);
        Compaction { summary, segments, ..Compaction::default() }
    }

    #[test]
    fn a_summary_reads_as_a_record() {
        let segments = [
            Segment { said: vec![said("a1", "Call me Ann."), said("b2", "No peanuts.")], text: "Greeted Ann.".into() },
            Segment { said: Vec::new(), text: "Read a.rs.".into() },
        ];
        let (text, _) = write(&segments, true);
        assert_eq!(
            text,
            "What the user said, word for word:\n[a1] Call me Ann.\n[b2] No peanuts.\n\nWhat was answered and \
             done:\nGreeted Ann.\n\n---\n\nRead a.rs."
        );
        assert!(write(&segments, false).0.contains("\n- Call me Ann.\n- No peanuts.\n"));
    }

    #[test]
    fn a_summary_that_was_changed_is_one_text() {
        let made = compaction(&[Segment { said: vec![said("a1", "x")], text: "y".into() }], true);
        let changed = [Segment { said: Vec::new(), text: "something else".to_owned() }];
        assert_eq!(read(Some(&made), "something else"), changed);
        assert_eq!(read(None, "something else"), changed);
        assert_eq!(read(None, " "), []);
    }

    #[test]
    fn the_newest_words_stay_and_the_rest_is_summarised() {
        let old = vec![
            Segment { said: vec![said("a", "one two"), said("b", "three four")], text: "first".into() },
            Segment { said: vec![said("c", "five six")], text: "second".into() },
        ];
        let new = vec![said("d", "seven eight")];
        // Each has two words, a mark and a line break, so it counts four.
        for (tokens, dropped, merged, kept) in [
            (16, &[][..], 0, &["a", "b", "c", "d"][..]),
            (13, &["b"], 1, &["a", "c", "d"]),
            (9, &["b", "c"], 2, &["a", "d"]),
            (3, &["b", "c"], 2, &["a"]),
        ] {
            let arranged = arrange(old.clone(), new.clone(), &room(tokens, 1_000), (u64::MAX, &words));
            let names = |said: &mut dyn Iterator<Item = &Said>| {
                said.map(|said| said.entry_id.as_ref().unwrap().to_string()).collect::<Vec<_>>()
            };
            assert_eq!(names(&mut arranged.dropped.iter()), dropped, "{tokens}");
            assert_eq!(arranged.merged.len(), merged, "{tokens}");
            let segments = arranged.merged.iter().chain(&arranged.kept);
            assert_eq!(names(&mut segments.flat_map(|segment| &segment.said).chain(&arranged.said)), kept, "{tokens}");
        }
    }

    #[test]
    fn newly_removed_words_stay_only_as_far_as_something_is_gained() {
        let old = vec![Segment { said: vec![said("a", "one two")], text: "first".into() }];
        let new = vec![said("b", "three four"), said("c", "five six")];
        for (new_tokens_max, kept) in [(8, 2), (7, 1), (3, 0)] {
            let arranged = arrange(old.clone(), new.clone(), &room(100, 1_000), (new_tokens_max, &words));
            assert_eq!((arranged.said.len(), arranged.keeps_all), (kept, kept == 2), "{new_tokens_max}");
            assert_eq!(arranged.kept, old, "{new_tokens_max}");
        }
    }

    #[test]
    fn the_oldest_segments_are_merged_when_all_are_too_long() {
        let of = |words: usize| Segment { said: Vec::new(), text: vec!["x"; words].join(" ") };
        let old = vec![of(20), of(20), of(20), of(20)];
        for (text_tokens, merged) in [(90, 0), (89, 2), (60, 3), (40, 4), (10, 4)] {
            let arranged = arrange(old.clone(), Vec::new(), &room(100, text_tokens), (u64::MAX, &words));
            assert_eq!(arranged.merged.len(), merged, "{text_tokens}");
        }
        let rewrite = Room { mode: SummaryMode::Rewrite, ..room(100, 1_000) };
        assert_eq!(arrange(old, Vec::new(), &rewrite, (u64::MAX, &words)).merged.len(), 4);
    }

    #[test]
    fn a_long_message_is_cut_in_its_middle_and_says_so() {
        let text = (0..2_000).map(|n| format!("word{n}")).collect::<Vec<_>>().join(" ");
        let said = |text: &str| Said::of(Some(&id("a1")), &Message::user(text), &room(100, 100), (u64::MAX, &words));
        let (of, is_whole) = said(&text).unwrap();
        assert!(!is_whole);
        assert!(of.text.starts_with("word0 ") && of.text.ends_with("word1999"), "{}", of.text);
        assert!(of.text.contains("characters left out; history_read with the id a1 shows them"), "{}", of.text);
        assert!(words(&of.text) <= MESSAGE_TOKENS_MIN);
        let (short, is_whole) = said("  yes\n").unwrap();
        assert_eq!((&*short.text, is_whole), ("yes", true));
        assert_eq!(said(" "), None);
    }

    proptest! {
        #[test]
        fn written_segments_are_read_back(
            of in prop::collection::vec((prop::collection::vec("(\\PC|\n){1,20}", 0..4), "(\\PC|\n){0,30}"), 0..5),
            shows_ids in any::<bool>(),
        ) {
            let segments: Vec<Segment> = of
                .into_iter()
                .enumerate()
                .map(|(at, (texts, text))| Segment {
                    said: texts.iter().enumerate().map(|(nth, text)| said(&format!("s{at}-{nth}"), text)).collect(),
                    text,
                })
                .filter(|segment| !segment.said.is_empty() || !segment.text.is_empty())
                .collect();
            let made = compaction(&segments, shows_ids);
            let whole = made.summary.clone();
            if !segments.is_empty() {
                prop_assert_eq!(parse(&whole, &made.segments), Some(segments));
            }
        }
    }
}
