//! Building blocks of test conversations: texts of known length, facts, valid summaries, and a model that talks.

use super::upstream;
use crate::support::scripted::{Reply, Scripted};
use reseed::core::{
    compaction::summary::{read_in_place, read_prompt},
    model::{ModelRequest, Purpose},
};
use reseed_protocol::Part;

const WORDS: [&str; 20] = [
    "harbour", "lantern", "copper", "meadow", "engine", "window", "river", "paper", "winter", "garden", "signal",
    "bridge", "carpet", "mirror", "needle", "orange", "pillow", "rocket", "saddle", "timber",
];

/// Returns a text of this many common words; another `seed` gives another text.
pub(crate) fn words(seed: u64, count: usize) -> String {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..count).map(|_| WORDS[rng.usize(..WORDS.len())]).collect::<Vec<_>>().join(" ")
}

/// Returns a summary with all of its sections, and these points in the last.
pub(crate) fn summary<T: AsRef<str>>(points: &[T]) -> String {
    let points: Vec<String> = points.iter().map(|point| format!("- {}", point.as_ref())).collect();
    let points = if points.is_empty() { "- none".to_owned() } else { points.join("\n") };
    format!(
        "## Goal\n- Talk about the harbour\n\n## Constraints & Preferences\n- none\n\n## Progress\n### Done\n- none\n\
         ### In Progress\n- none\n### Blocked\n- none\n\n## Key Decisions\n- none\n\n## Next Steps\n- none\n\n\
         ## Critical Context\n{points}"
    )
}

/// Returns the facts in a text, each once: from the word FACT to the end of its line.
pub(crate) fn facts(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in text.lines() {
        if let Some(at) = line.find("FACT ") {
            let fact = line[at..].trim().to_owned();
            if !found.contains(&fact) {
                found.push(fact);
            }
        }
    }
    found
}

/// Returns all text of a request except its system prompt.
pub(crate) fn text_of(request: &ModelRequest) -> String {
    let mut texts: Vec<&str> = Vec::new();
    for message in request.messages() {
        for part in &message.message.content {
            match part {
                Part::Text { text } | Part::Reasoning { text, .. } => texts.push(text),
                Part::ToolResult { output, .. } => texts.push(output),
                Part::ToolCall { arguments, .. } => texts.push(arguments),
                Part::Image { .. } => {}
            }
        }
    }
    texts.join("\n")
}

/// Returns how many of these requests were for summaries.
pub(crate) fn summaries(requests: &[ModelRequest]) -> usize {
    requests.iter().filter(|request| request.purpose == Purpose::Summary).count()
}

/// Returns a model that answers with this many words, summarises by keeping facts, and reports no usage.
pub(crate) fn talker(answer_words: usize) -> Scripted {
    let mut asked = 0;
    Scripted::answering(move |request| {
        asked += 1;
        Reply::text(match request.purpose {
            Purpose::Turn => words(asked, answer_words),
            Purpose::Summary => summary(&facts(&text_of(request))),
        })
    })
}

/// Returns true if this requests a summary, or sections that one lacks.
pub(crate) fn is_summary(asked: &upstream::Asked) -> bool {
    let last = asked.last_user_text();
    read_prompt(&last).is_some()
        || ["That lacks some of the headings", "That has none of the headings"]
            .iter()
            .any(|head| last.starts_with(head))
}

/// Returns true if this requests a summary at the end of the conversation itself.
pub(crate) fn rides(asked: &upstream::Asked) -> bool {
    read_in_place(&asked.last_user_text()).is_some()
}

/// Returns a model server's reply: this many words, or a summary that keeps the facts. `number` varies the words of
/// answers.
pub(crate) fn reply_to(asked: &upstream::Asked, number: u64, answer_words: usize) -> upstream::Reply {
    upstream::Reply::text(match asked {
        asked if is_summary(asked) => summary(&facts(&asked.last_user_text())),
        asked if rides(asked) => summary(&facts(&asked.text())),
        _ => words(number, answer_words),
    })
}
