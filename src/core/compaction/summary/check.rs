//! Decides which answers are accepted as summaries, by structure alone: their content is not judged.
//!
//! An accepted text contains no invisible characters, secrets or escapes, no line of the request, and no turn that the
//! model invented.

use super::{copy::is_copy, prompt::is_our_own};
use crate::compaction::segments::speaker;
use crate::text::{
    clean::clean,
    escape::{self, TextKind},
    files::strip_files,
    secrets::mask_secrets,
};

/// The reason an answer is not a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// There is no text, or only a copy of the request's own lines.
    #[error("the summary is empty")]
    Empty,
    /// It is a copy of the conversation.
    #[error("the summary is a copy of the conversation")]
    Copied,
    /// It continues the conversation, and contains nothing else.
    #[error("the answer continues the conversation instead of summarising it")]
    Continued,
}

/// Line beginnings that mark turns of a conversation, in the form of our requests and as models write them.
const QUOTED: [&str; 6] =
    ["[User]:", "[Assistant]:", "[Assistant thinking]:", "[Tool call]:", "[Tool result]:", "[Tool error]:"];
const PLAYED: [&str; 2] = ["User:", "Assistant:"];

/// Accepts a model's answer as a summary of the conversation that `blocks` quote. `delimiter` is the mark that delimits
/// quotations in the request.
///
/// # Errors
/// The answer is empty, a copy, or a continuation of the conversation.
pub fn check(text: &str, delimiter: &str, blocks: &[&str]) -> Result<String, Unusable> {
    let text = answer(text);
    let is_ours = |line: &&str| {
        (!delimiter.is_empty() && line.contains(delimiter)) || is_our_own(line) || speaker(line.trim()).is_some()
    };
    let lines: Vec<&str> = text.lines().filter(|line| !is_ours(line)).collect();
    let told = before_played(&lines);
    let summary = told.join("\n").trim().to_owned();
    let is_heading = |line: &&str| line.trim().is_empty() || line.starts_with('#');
    match () {
        () if told.iter().all(is_heading) && told.len() < lines.len() => Err(Unusable::Continued),
        () if told.iter().all(is_heading) => Err(Unusable::Empty),
        () if is_copy(&summary, blocks) => Err(Unusable::Copied),
        () => Ok(summary),
    }
}

/// Returns the lines before the first turn that the model invented.
fn before_played<'a>(lines: &'a [&'a str]) -> &'a [&'a str] {
    let quoted = |line: &&str| {
        let bare = line.trim_start_matches([' ', '-', '*', '>']).replacen('\\', "", 1);
        QUOTED.iter().any(|head| bare.starts_with(head))
    };
    let speaks = |line: &&str, head: &str| line.trim_start_matches([' ', '*', '>']).starts_with(head);
    // A list of what both did may name them, and so may a paragraph about one; a dialogue has lines of both.
    let is_dialogue = PLAYED.iter().all(|head| lines.iter().any(|line| speaks(line, head)));
    let played = |line: &&str| quoted(line) || is_dialogue && PLAYED.iter().any(|head| speaks(line, head));
    &lines[..lines.iter().position(played).unwrap_or(lines.len())]
}

/// Returns the intended answer of a model: without reasoning, fences, file lists, invisible characters and secrets, and
/// with copied escapes unescaped.
fn answer(text: &str) -> String {
    let text = clean(text);
    let text = strip_files(without_fences(without_thoughts(text.trim())));
    let text = escape::bare(text, TextKind::Quoted);
    mask_secrets(text.trim()).into_owned()
}

/// Removes reasoning, which some models put first. If the reasoning does not end, there is no answer after it.
fn without_thoughts(text: &str) -> &str {
    match text.strip_prefix("<think>") {
        Some(rest) => rest.split_once("</think>").map_or("", |(_, answer)| answer.trim()),
        None => text,
    }
}

fn without_fences(text: &str) -> &str {
    let Some(inner) = text.strip_prefix("```") else { return text };
    let inner = inner.split_once('\n').map_or("", |(_language, body)| body).trim_end();
    inner.strip_suffix("```").unwrap_or(inner).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_form_decides() {
        let good = "## Goal\n- Feed Miso\n\n## Next Steps\n- Buy food";
        for (text, expected) in [
            (good.to_owned(), Ok(good)),
            (format!("  ```markdown\n{good}\n```\n"), Ok(good)),
            (format!("<think>## Goal\n- think</think>\n{good}"), Ok(good)),
            (format!("{good}\n\n<read-files>\na.rs\n</read-files>"), Ok(good)),
            (format!("k3j9x2 conversation\n{good}\nk3j9x2 end"), Ok(good)),
            (format!("Summarise the conversation. At most 300 words.\n{good}"), Ok(good)),
            (format!("{good}\n[User]: And now?\n[Assistant]: Now we buy food."), Ok(good)),
            (format!("{good}\nUser: And now?\nAssistant: Now we buy food."), Ok(good)),
            ("User: wants to feed Miso".to_owned(), Ok("User: wants to feed Miso")),
            ("Fed Miso.\n---\nWhat the user said, word for word:\n- Sell it.".into(), Ok("Fed Miso.\n- Sell it.")),
            ("- User: wants food\n- Assistant: found some".into(), Ok("- User: wants food\n- Assistant: found some")),
            ("I am sorry, I cannot do that.".to_owned(), Ok("I am sorry, I cannot do that.")),
            ("Der Hafen ist 8443.".to_owned(), Ok("Der Hafen ist 8443.")),
            (String::new(), Err(Unusable::Empty)),
            (" \n ".to_owned(), Err(Unusable::Empty)),
            ("```\n```".to_owned(), Err(Unusable::Empty)),
            ("<think>still thinking".to_owned(), Err(Unusable::Empty)),
            ("\u{200b}\u{202e}\u{7}".to_owned(), Err(Unusable::Empty)),
            ("## Goal\n\n## Next Steps".to_owned(), Err(Unusable::Empty)),
            ("Summarise the conversation. At most 300 words.".to_owned(), Err(Unusable::Empty)),
            ("[User]: And now?\n[Assistant]: Now we buy food.".to_owned(), Err(Unusable::Continued)),
            ("[\\User]: And now?".to_owned(), Err(Unusable::Continued)),
        ] {
            assert_eq!(check(&text, "k3j9x2", &[]).as_deref(), expected.as_ref().map(|text| *text), "from {text}");
        }
        let said = "A sentence of the conversation. ".repeat(60);
        assert_eq!(check(&said, "k3j9x2", &[&said]), Err(Unusable::Copied));
    }
}
