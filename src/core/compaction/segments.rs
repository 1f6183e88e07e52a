//! The segments of a summary: what the user said in a stretch of the session, word for word, and what the model wrote
//! about the rest of it.
//!
//! Invariants:
//! - a segment is not changed until it is merged, so its bytes stay in the provider's cache;
//! - the user's messages stay in order; the first stays always, and of the others the newest stay longest: which ones
//!   are left out is decided by room alone, never by what they say;
//! - [`read`] gives back what [`write`] wrote.

use crate::core::{
    compaction::{identifiers, strategy::share},
    context::messages::{Context, Counted, Kind},
    text::{clean::clean, clip::head_and_tail},
};
use reseed_protocol::{
    EntryId, Message, Part,
    command::SummaryMode,
    entry::{Compaction, SaidByUser, SummarySegment},
};
use std::fmt::Write as _;

const SAID: &str = "What the user said, word for word:";
const DONE: &str = "What was answered and done:";
const BETWEEN: &str = "\n\n---\n\n";

/// The part of a compaction's target that all segments may have of what the model wrote: a fifth.
const TEXT_PART: u64 = 5;
/// Minimum tokens that the model may write of one stretch.
const NEW_TOKENS_MIN: u64 = 256;
/// The part of the room for the user's words that one message may take.
const MESSAGE_PART: u64 = 4;
/// Minimum tokens that one message of the user may take: a paragraph.
const MESSAGE_TOKENS_MIN: u64 = 160;
/// Characters per token of the first try to shorten a message; as often as it is still too long, a quarter less.
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

/// How much room segments have, in estimated tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// For the user's words.
    pub said_tokens: u64,
    /// For what the model wrote, all segments together.
    pub text_tokens: u64,
    /// For what the model writes of one stretch.
    pub new_tokens: u64,
    /// What becomes of earlier segments.
    pub mode: SummaryMode,
    /// True if the ids of messages are shown: the session offers tools that read them.
    pub shows_ids: bool,
}

impl Room {
    /// Returns the room within a compaction's target. `most` is the longest that a summary may be in this window, and
    /// `user_share` the share of the target for the user's words.
    #[must_use]
    pub fn of(target_tokens: u64, most: u64, user_share: f64, mode: SummaryMode) -> Self {
        let said_tokens = share(target_tokens, user_share);
        let text_tokens = target_tokens / TEXT_PART;
        let new_tokens = match mode {
            SummaryMode::Segments => most.min((text_tokens / 3).max(NEW_TOKENS_MIN)),
            SummaryMode::Rewrite => most,
        };
        Self { said_tokens, text_tokens: text_tokens.max(2 * new_tokens), new_tokens, mode, shows_ids: false }
    }

    /// Returns the same room with or without the user's words. Without them there is one text.
    #[must_use]
    pub fn with_words(self, keeps: bool) -> Self {
        if keeps { self } else { Self { said_tokens: 0, mode: SummaryMode::Rewrite, ..self } }
    }

    /// Returns the tokens that a summary of this context may have: what the present one has, the user's words in the
    /// context, and what the model writes; at most what its parts may have.
    #[must_use]
    pub fn expected(&self, context: &Context) -> u64 {
        let tokens = |is_such: &dyn Fn(&Counted) -> bool| {
            let such = context.messages.iter().filter(|counted| is_such(counted));
            such.map(|counted| counted.tokens.total()).sum::<u64>()
        };
        let now = tokens(&|counted| counted.kind == Kind::Summary);
        let said = if self.said_tokens > 0 { tokens(&|counted| counted.is_input) } else { 0 };
        (now + said + self.new_tokens).min(self.said_tokens + self.text_tokens)
    }

    /// Returns the same room, with or without the ids of messages.
    #[must_use]
    pub fn with_ids(self, shows_ids: bool) -> Self {
        Self { shows_ids, ..self }
    }
}

/// What becomes of earlier segments, and what is kept of the user's new messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Arranged {
    /// The oldest segments, which are merged into one.
    pub merged: Vec<Segment>,
    /// Messages of those that no longer fit: they are summarised.
    pub dropped: Vec<Said>,
    /// The segments that stay as they are.
    pub kept: Vec<Segment>,
    /// The user's new messages.
    pub said: Vec<Said>,
    /// True if all of the user's new messages stay.
    pub keeps_all: bool,
}

impl Said {
    /// Returns what a message says, without what only programs read; shortened in its middle if it takes more than its
    /// part of the room, or half of what may stay of what leaves now (`new_tokens_max`). `None` if it says nothing.
    #[must_use]
    pub fn of(
        id: Option<&EntryId>,
        message: &Message,
        room: &Room,
        (new_tokens_max, count): (u64, &dyn Fn(&str) -> u64),
    ) -> Option<Self> {
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
        let text = clean(text.trim()).into_owned();
        if text.is_empty() {
            return None;
        }
        let tokens_max = (room.said_tokens / MESSAGE_PART).min(new_tokens_max / 2).max(MESSAGE_TOKENS_MIN);
        let text = shortened(&text, tokens_max, id.filter(|_| room.shows_ids), count);
        Some(Self { entry_id: id.cloned(), text })
    }

    fn mark(&self, shows_ids: bool) -> String {
        match &self.entry_id {
            Some(id) if shows_ids => format!("[{id}] "),
            _ => "- ".to_owned(),
        }
    }
}

/// Cuts a long text in its middle, with a note of what is missing and how to read it.
fn shortened(text: &str, tokens_max: u64, id: Option<&EntryId>, count: &dyn Fn(&str) -> u64) -> String {
    // A token has at most some sixteen characters in any text that people write: most need not be counted.
    if text.len() as u64 <= tokens_max || count(text) <= tokens_max {
        return text.to_owned();
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
            return cut;
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

/// Returns the text of these segments, and where each stands in it.
#[must_use]
pub fn write(segments: &[Segment], shows_ids: bool) -> (String, Vec<SummarySegment>) {
    let rendered: Vec<_> = segments.iter().map(|segment| segment.render(shows_ids)).collect();
    let text = rendered.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>().join(BETWEEN);
    (text, rendered.into_iter().map(|(_, segment)| segment).collect())
}

/// Returns the segments of a compaction's summary, without its file lists, which are given apart. A summary without
/// segments is one of its own: `whole`, and so is one that was changed since.
#[must_use]
pub fn read(compaction: Option<&Compaction>, whole: &str) -> Vec<Segment> {
    let segments = compaction.and_then(|compaction| parse(whole, &compaction.segments));
    segments.unwrap_or_else(|| match whole.trim() {
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
    rest.trim().is_empty().then_some(parsed)
}

/// Decides what becomes of the earlier segments (`old`) when these messages of the user (`said`) leave the context. At
/// most `new_tokens_max` of them stay word for word, so that something is gained.
#[must_use]
pub fn arrange(
    old: Vec<Segment>,
    said: Vec<Said>,
    room: &Room,
    (new_tokens_max, count): (u64, &dyn Fn(&str) -> u64),
) -> Arranged {
    let tokens = |said: &Said| count(&said.text) + count(&said.mark(room.shows_ids)) + 1;
    let new: Vec<u64> = said.iter().map(tokens).collect();
    let earlier: Vec<Vec<u64>> = old.iter().map(|segment| segment.said.iter().map(tokens).collect()).collect();
    let all: u64 = new.iter().chain(earlier.iter().flatten()).sum();
    // What was dropped breaks the cache, so more is dropped than is needed just now.
    let has_old_words = earlier.iter().any(|segment| !segment.is_empty());
    let limit = match (all > room.said_tokens, has_old_words) {
        (false, _) => u64::MAX,
        (true, true) => room.said_tokens * 7 / 8,
        (true, false) => room.said_tokens,
    };
    // What the user said first, which tells who is speaking and what it is about, stays longest.
    let opens = old.iter().all(|segment| segment.said.is_empty()) && new.first().is_some_and(|n| *n <= new_tokens_max);
    let opening = if opens && room.said_tokens > 0 { new[0] } else { 0 };
    let (mut left, mut new_left) = (limit.saturating_sub(opening), new_tokens_max.saturating_sub(opening));
    let mut first = new.len();
    while let Some(tokens) = first.checked_sub(1).map(|at| if at == 0 && opening > 0 { 0 } else { new[at] })
        && tokens <= left
        && tokens <= new_left
    {
        (left, new_left, first) = (left - tokens, new_left - tokens, first - 1);
    }
    // Once one has no room, nothing older has: what is kept has no gaps. What is gained now decides only about what
    // leaves now.
    let mut is_open = first.checked_sub(1).is_none_or(|at| new[at] <= left);
    let keeps_all = first == 0;
    let mut fits = |tokens: u64| {
        is_open = is_open && tokens <= left;
        left -= if is_open { tokens } else { 0 };
        is_open
    };
    let mut from: Vec<usize> = earlier
        .iter()
        .rev()
        .map(|segment| segment.iter().rposition(|tokens| !fits(*tokens)).map_or(0, |at| at + 1))
        .collect();
    from.reverse();
    let stays = |at: usize| at >= first || at == 0 && opening > 0;
    let said = said.into_iter().enumerate().filter(|(at, _)| stays(*at)).map(|(_, said)| said).collect();
    let mut arranged = Arranged { said, keeps_all, ..Arranged::default() };
    let mut changed = 0;
    let mut is_first = true;
    let mut segments = Vec::with_capacity(old.len());
    for (at, (segment, from)) in old.into_iter().zip(from).enumerate() {
        let mut said = Vec::with_capacity(segment.said.len());
        for (nth, words) in segment.said.into_iter().enumerate() {
            let stays_longest = std::mem::take(&mut is_first) || words.entry_id.is_none();
            if nth >= from || stays_longest {
                said.push(words);
            } else {
                changed = at + 1;
                arranged.dropped.push(words);
            }
        }
        segments.push(Segment { said, text: segment.text });
    }
    let merged = changed.max(too_long(&segments, room, count));
    arranged.kept = segments.split_off(merged);
    arranged.merged = segments;
    arranged
}

/// Returns how many of the oldest segments must be merged so that a new one has room.
fn too_long(segments: &[Segment], room: &Room, count: &dyn Fn(&str) -> u64) -> usize {
    if room.mode == SummaryMode::Rewrite {
        return segments.len();
    }
    let tokens: Vec<u64> = segments.iter().map(|segment| count(&segment.text)).collect();
    let all: u64 = tokens.iter().sum();
    if all + room.new_tokens <= room.text_tokens {
        return 0;
    }
    // A quarter stays free, so that not every compaction merges.
    let mut rest = all;
    for (at, tokens) in tokens.iter().enumerate() {
        rest -= tokens;
        if at > 0 && rest + 2 * room.new_tokens <= room.text_tokens / 4 * 3 {
            return at + 1;
        }
    }
    segments.len()
}

impl Arranged {
    /// Returns true if everything earlier and what newly leaves become one text: one request does both.
    #[must_use]
    pub fn is_one(&self) -> bool {
        self.kept.is_empty()
    }

    /// Returns what the model wrote of the segments that are merged, to be written again.
    #[must_use]
    pub fn merged_text(&self) -> Option<String> {
        let texts = self.merged.iter().map(|segment| identifiers::split(segment.text.trim()).0);
        let texts: Vec<&str> = texts.filter(|text| !text.is_empty()).collect();
        (!texts.is_empty()).then(|| texts.join("\n\n"))
    }

    /// Returns the identifiers that the merged segments list, the newest first.
    #[must_use]
    pub fn merged_identifiers(&self) -> Vec<String> {
        self.merged.iter().rev().flat_map(|segment| identifiers::split(&segment.text).1).collect()
    }

    /// Returns true if the merged segments need a request of their own.
    #[must_use]
    pub fn merges_apart(&self) -> bool {
        !self.merged.is_empty() && !self.is_one() && (self.merged.len() > 1 || !self.dropped.is_empty())
    }

    /// Returns the segments that follow: `merged` is the new text of the merged ones, `text` that of what newly leaves.
    #[must_use]
    pub fn finish(self, merged: Option<String>, text: String) -> Vec<Segment> {
        let is_one = self.is_one();
        let said: Vec<Said> = self.merged.into_iter().flat_map(|segment| segment.said).collect();
        let mut segments = Vec::with_capacity(self.kept.len() + 2);
        if is_one {
            segments.push(Segment { said: said.into_iter().chain(self.said).collect(), text });
        } else {
            segments.push(Segment { said, text: merged.unwrap_or_default() });
            segments.extend(self.kept);
            segments.push(Segment { said: self.said, text });
        }
        segments.retain(|segment| !segment.said.is_empty() || !segment.text.is_empty());
        segments
    }
}

/// Returns who speaks after this line of a summary, if it says so: true for the user.
#[must_use]
pub fn speaker(line: &str) -> Option<bool> {
    match line {
        SAID => Some(true),
        DONE | "---" => Some(false),
        _ => None,
    }
}

/// Makes sure that these constraints, which an older version had recorded, are still in the text.
pub fn hold(segments: &mut Vec<Segment>, constraints: &[String]) {
    let has = |text: &str, constraint: &str| text.contains(constraint);
    let missing: Vec<Said> = constraints
        .iter()
        .filter(|constraint| {
            !segments.iter().any(|segment| {
                has(&segment.text, constraint) || segment.said.iter().any(|said| has(&said.text, constraint))
            })
        })
        .map(|constraint| Said { entry_id: None, text: constraint.clone() })
        .collect();
    if missing.is_empty() {
        return;
    }
    match segments.first_mut() {
        Some(first) => first.said.splice(0..0, missing).for_each(drop),
        None => segments.push(Segment { said: missing, text: String::new() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(name: &str) -> EntryId {
        name.parse().unwrap()
    }

    fn said(name: &str, text: &str) -> Said {
        Said { entry_id: Some(id(name)), text: text.to_owned() }
    }

    fn room(said_tokens: u64, text_tokens: u64) -> Room {
        Room { said_tokens, text_tokens, new_tokens: 10, mode: SummaryMode::Segments, shows_ids: true }
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
        // Each has two words, a mark and a line break: four.
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
    fn of_what_leaves_only_so_much_stays_that_something_is_gained() {
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
        let of = Said::of(Some(&id("a1")), &Message::user(&*text), &room(100, 100), (u64::MAX, &words)).unwrap();
        assert!(of.text.starts_with("word0 ") && of.text.ends_with("word1999"), "{}", of.text);
        assert!(of.text.contains("characters left out; history_read with the id a1 shows them"), "{}", of.text);
        assert!(words(&of.text) <= MESSAGE_TOKENS_MIN);
        let short = Said::of(Some(&id("a1")), &Message::user("  yes\n"), &room(100, 100), (u64::MAX, &words)).unwrap();
        assert_eq!(short.text, "yes");
        assert_eq!(Said::of(None, &Message::user(" "), &room(100, 100), (u64::MAX, &words)), None);
    }

    #[test]
    fn constraints_of_older_entries_stay() {
        let mut segments = vec![Segment { said: Vec::new(), text: "- Never push to main.".into() }];
        hold(&mut segments, &["Never push to main.".into(), "Use tabs.".into()]);
        assert_eq!(segments[0].said, [Said { entry_id: None, text: "Use tabs.".into() }]);
        let arranged = arrange(segments, Vec::new(), &room(0, 1_000), (u64::MAX, &words));
        assert!(arranged.dropped.is_empty(), "they have no entry to be found again");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
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
