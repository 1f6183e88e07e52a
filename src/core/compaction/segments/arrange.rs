//! Decides which segments stay, which are merged, and which of the user's messages are kept.

use super::{Room, Said, Segment};
use crate::compaction::identifiers;
use reseed_protocol::compaction::SummaryMode;

/// The plan for earlier segments, and for the user's new messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Arranged {
    /// The oldest segments, which are merged into one.
    pub merged: Vec<Segment>,
    /// The messages in the merged segments that no longer fit; they are summarised.
    pub dropped: Vec<Said>,
    /// The segments that stay as they are.
    pub kept: Vec<Segment>,
    /// The user's new messages.
    pub said: Vec<Said>,
    /// True if all of the user's new messages stay.
    pub keeps_all: bool,
}

/// Decides what happens to the earlier segments (`old`) when these messages of the user (`said`) leave the context. At
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
    let mut earlier: Vec<Vec<u64>> = old.iter().map(|segment| segment.said.iter().map(tokens).collect()).collect();
    let all: u64 = new.iter().chain(earlier.iter().flatten()).sum();
    // Dropping breaks the cache, so more is dropped than is needed right now.
    let has_old_words = earlier.iter().any(|segment| !segment.is_empty());
    let limit = match (all > room.said_tokens, has_old_words) {
        (false, _) => u64::MAX,
        (true, true) => room.said_tokens * 15 / 16,
        (true, false) => room.said_tokens,
    };
    // The user's first words, which introduce the speaker and the subject, stay longest.
    let opens = old.iter().all(|segment| segment.said.is_empty()) && new.first().is_some_and(|n| *n <= new_tokens_max);
    let opening = if opens && room.said_tokens > 0 { new[0] } else { 0 };
    let opened = earlier.iter_mut().flatten().next().map_or(0, std::mem::take);
    let (mut left, mut new_left) = (limit.saturating_sub(opening + opened), new_tokens_max.saturating_sub(opening));
    let mut first = new.len();
    while let Some(tokens) = first.checked_sub(1).map(|at| if at == 0 && opening > 0 { 0 } else { new[at] })
        && tokens <= left
        && tokens <= new_left
    {
        (left, new_left, first) = (left - tokens, new_left - tokens, first - 1);
    }
    // Once a message has no room, neither has any older one, so there are no gaps. The gain of this compaction limits
    // only the messages that it removes.
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
    let earlier_words: u64 = earlier.iter().zip(&from).flat_map(|(tokens, from)| &tokens[*from..]).sum();
    let new_words: u64 = new[first..].iter().sum::<u64>() + if first > 0 { opening } else { 0 };
    let text_tokens_max = room.text_beside(opened + earlier_words + new_words);
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
    let merged = changed.max(too_long(&segments, room, (text_tokens_max, count)));
    arranged.kept = segments.split_off(merged);
    arranged.merged = segments;
    arranged
}

/// Returns how many of the oldest segments must be merged so that a new one has room.
fn too_long(segments: &[Segment], room: &Room, (tokens_max, count): (u64, &dyn Fn(&str) -> u64)) -> usize {
    if room.mode == SummaryMode::Rewrite {
        return segments.len();
    }
    let tokens: Vec<u64> = segments.iter().map(|segment| count(&segment.text)).collect();
    let all: u64 = tokens.iter().sum();
    if all + room.new_tokens <= tokens_max {
        return 0;
    }
    // A quarter stays free, so that not every compaction merges.
    let mut rest = all;
    for (at, tokens) in tokens.iter().enumerate() {
        rest -= tokens;
        if at > 0 && rest + 2 * room.new_tokens <= tokens_max / 4 * 3 {
            return at + 1;
        }
    }
    segments.len()
}

impl Arranged {
    /// Returns true if all earlier segments and the newly removed messages become one text; one request then writes
    /// both.
    #[must_use]
    pub fn is_one(&self) -> bool {
        self.kept.is_empty()
    }

    /// Returns the model's text of the merged segments, to be rewritten.
    #[must_use]
    pub fn merged_text(&self) -> Option<String> {
        let texts = self.merged.iter().map(|segment| identifiers::split(segment.text.trim()).0);
        let texts: Vec<&str> = texts.filter(|text| !text.is_empty()).collect();
        (!texts.is_empty()).then(|| texts.join("\n\n"))
    }

    /// Returns the identifiers that the merged segments list, newest first.
    #[must_use]
    pub fn merged_identifiers(&self) -> Vec<String> {
        self.merged.iter().rev().flat_map(|segment| identifiers::split(&segment.text).1).collect()
    }

    /// Returns true if the merged segments need a separate request.
    #[must_use]
    pub fn merges_apart(&self) -> bool {
        !self.merged.is_empty() && !self.is_one() && (self.merged.len() > 1 || !self.dropped.is_empty())
    }

    /// Returns the resulting segments: `merged` is the new text of the merged ones, and `text` is that of the newly
    /// removed messages.
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
