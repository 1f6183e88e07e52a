//! The kind of a conversation, and what its summary must therefore keep.
//!
//! The kind is recognised by rule, from tools, files, code and errors. Nothing is understood: a conversation of no
//! other kind is a chat.

use crate::core::{
    compaction::summary::retain::identify::IdentifierKind,
    text::words::{Phrases, Words},
};
use reseed_protocol::{Message, Part, Role, command::SummaryKind};

/// Characters examined per message: its topic shows at its beginning.
const CHARS_MAX: usize = 2_000;
/// Minimum messages that must indicate a kind, and their minimum fraction of all messages.
const LEAST: usize = 2;
const LEAST_PART: usize = 6;

/// Returns what a summary of this kind must keep, in the words of the request.
pub(super) fn task(kind: SummaryKind) -> &'static str {
    match kind {
        SummaryKind::Auto | SummaryKind::Chat => "",
        SummaryKind::Code => {
            " Keep which files were changed and how, symbols with their signatures word for word, and decisions with \
             their reasons."
        }
        SummaryKind::Debugging => {
            " Keep the symptoms, exact errors word for word, how to reproduce them, which hypotheses were ruled out \
             and why, and what is suspected now."
        }
        SummaryKind::Research => {
            " Keep every source with its address, each claim with its source, and the questions that are open."
        }
    }
}

/// Recognises the kind of a conversation.
#[must_use]
pub fn recognise<'a>(messages: impl Iterator<Item = &'a Message>) -> SummaryKind {
    let (mut all, mut code, mut errors, mut sources) = (0, 0, 0, 0);
    for message in messages {
        all += 1;
        let shows = Shows::of(message);
        code += usize::from(shows.code);
        errors += usize::from(shows.error);
        sources += usize::from(shows.source);
    }
    let is_enough = |count: usize| count >= LEAST && count * LEAST_PART >= all;
    // Debugging involves code too, and research reads about both.
    let kinds = [
        (errors * 2, errors, SummaryKind::Debugging),
        (code, code, SummaryKind::Code),
        (sources, sources, SummaryKind::Research),
    ];
    let shown = kinds.into_iter().filter(|(_, count, _)| is_enough(*count));
    // Among equals the first.
    shown.rev().max_by_key(|(weight, ..)| *weight).map_or(SummaryKind::Chat, |(.., kind)| kind)
}

/// What one message indicates.
#[derive(Default)]
struct Shows {
    code: bool,
    error: bool,
    source: bool,
}

impl Shows {
    fn of(message: &Message) -> Self {
        let mut shows = Self::default();
        for part in &message.content {
            match part {
                Part::Text { text } => shows.text(text, message.role),
                Part::ToolCall { name, arguments, .. } => shows.call(name, arguments),
                Part::ToolResult { output, is_error, .. } => {
                    let output = head(output);
                    shows.error = shows.error || *is_error || is_error_text(output);
                    shows.source = shows.source || output.contains("://");
                }
                Part::Image { .. } | Part::Reasoning { .. } => {}
            }
        }
        shows
    }

    fn text(&mut self, text: &str, role: Role) {
        let text = head(text);
        // What was found is not searched for again.
        self.code = self.code || text.contains("```") || has_source_file(text) || is_signature(text);
        self.error = self.error || is_error_text(text) || role == Role::User && complains(text);
        self.source = self.source || text.contains("://") || cites(text);
    }

    fn call(&mut self, name: &str, arguments: &str) {
        let words = Words::of(name);
        let has = |names: &[&str]| words.iter().any(|word| names.contains(&word));
        self.source |= has(&["search", "fetch", "browse", "web", "url", "crawl", "arxiv", "scholar", "wikipedia"])
            && !has(&["code", "file", "files", "grep"]);
        self.code |=
            has(&["edit", "write", "patch", "apply", "read", "grep", "bash", "shell", "run", "compile", "test"])
                && (has_source_file(head(arguments)) || has(&["bash", "shell", "compile", "patch", "grep"]));
    }
}

fn head(text: &str) -> &str {
    match text.as_bytes().get(..CHARS_MAX) {
        // The number of bytes bounds the number of characters.
        None => return text,
        Some(bytes) if bytes.is_ascii() => return &text[..CHARS_MAX],
        Some(_) => {}
    }
    text.char_indices().nth(CHARS_MAX).map_or(text, |(at, _)| &text[..at])
}

/// Returns true for a text that names a source code file.
fn has_source_file(text: &str) -> bool {
    const ENDINGS: [&str; 26] = [
        ".rs", ".py", ".js", ".ts", ".tsx", ".jsx", ".go", ".java", ".kt", ".c", ".h", ".cpp", ".cs", ".rb", ".php",
        ".swift", ".sh", ".sql", ".css", ".html", ".vue", ".toml", ".yaml", ".yml", ".ex", ".scala",
    ];
    // Most texts without file names have a full stop only at the end of a sentence.
    let may_name = text.as_bytes().windows(2).any(|pair| pair[0] == b'.' && pair[1].is_ascii_lowercase());
    let is_gap = |c: char| {
        c.is_whitespace()
            || matches!(c, '"' | '\'' | '`' | '(' | ')' | ',' | ':' | ';' | '<' | '>' | '[' | ']' | '{' | '}')
    };
    may_name
        && text.split(is_gap).any(|word| {
            let word = word.trim_end_matches(['.', '?', '!']);
            let ending = word.rfind('.').map(|at| &word[at..]);
            ending.is_some_and(|ending| word.len() > 3 && ENDINGS.contains(&ending)) && !word.contains("://")
        })
}

/// Keywords that start a signature in code.
static SIGNATURE_STARTS: Phrases =
    Phrases::new(&["pub fn ", "async fn ", "fn ", "def ", "function ", "func ", "class ", "interface ", "struct "]);

fn is_signature(text: &str) -> bool {
    SIGNATURE_STARTS.any_in(text) && text.lines().any(|line| signature(line).is_some())
}

/// Returns the span of a signature in a sentence.
fn signature(sentence: &str) -> Option<(usize, usize)> {
    if !SIGNATURE_STARTS.any_in(sentence) {
        return None;
    }
    let found = SIGNATURE_STARTS.iter().filter_map(|key| Some((find_word(sentence, key)?, key.len())));
    let (at, key_bytes) = found.min()?;
    let rest = &sentence[at..];
    let named = &rest[key_bytes..];
    let after = named.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_' || c == '$');
    let is_named =
        after.len() < named.len() && (after.starts_with(['(', '<', ':']) || after.trim_start().starts_with('{'));
    if !is_named || !rest.contains(['(', '{']) {
        return None;
    }
    let end = rest.trim_end().trim_end_matches(['`', '{', ' ', '.', ';']);
    Some((at, at + end.len()))
}

/// Returns the position where a word starts in a text.
fn find_word(text: &str, key: &str) -> Option<usize> {
    let at = text.find(key)?;
    let before = text[..at].chars().next_back();
    before.is_none_or(|c| !c.is_alphanumeric() && c != '_').then_some(at)
}

/// Returns true for the output of a failing program.
fn is_error_text(text: &str) -> bool {
    static MARKS: Phrases = Phrases::new(&[
        "error:",
        "Error:",
        "ERROR",
        "error[",
        "Exception",
        "Traceback",
        "panicked at",
        "stack trace",
        "Segmentation fault",
        "core dumped",
        "FAILED",
        "assertion failed",
        "AssertionError",
        "exit code 1",
        "exit status 1",
        "undefined is not",
        "null pointer",
        "SIGSEGV",
    ]);
    MARKS.any_in(text)
}

/// Returns true for a user's report that something does not work.
fn complains(text: &str) -> bool {
    static WORDS: Phrases = Phrases::new(&[
        "crash",
        "hangs",
        "broken",
        "doesn't work",
        "does not work",
        "not working",
        "stopped working",
        "bug",
        "reproduce",
        "fails",
        "failing",
        "timeout",
        "absturz",
        "stürzt ab",
        "funktioniert nicht",
        "fehler",
        "ne marche pas",
        "no funciona",
        "не работает",
        "报错",
        "崩溃",
        "エラー",
    ]);
    WORDS.any_in_any_case(text)
}

/// Returns true for a text that cites a source.
fn cites(text: &str) -> bool {
    static MARKS: Phrases = Phrases::new(&[
        "according to",
        "et al.",
        "doi:",
        "arxiv",
        "the study",
        "the paper",
        "published in",
        "laut ",
        "selon ",
        "según ",
        "secondo ",
        "согласно",
        "根据",
        "によると",
    ]);
    MARKS.any_in_any_case(text)
}

/// Phrases for decisions.
static DECIDES: Phrases =
    Phrases::new(&["ecided", "ecision", "greed", "hose ", "ettled on", "entschieden", "beschlossen", "决定", "решили"]);
/// Phrases that narrow down a fault: when it occurs, or what does not cause it.
static NARROWS: Phrases = Phrases::new(&[
    "uled out",
    "not the cause",
    "n't the cause",
    "not the problem",
    "did not help",
    "didn't help",
    "made no difference",
    "makes no difference",
    "eproduce",
    "o trigger",
    "appens when",
    "ccurs when",
    "hangs when",
    "rashes when",
    "ails when",
    "uspect",
    "ausgeschlossen",
    "nicht die Ursache",
    "排除",
    "复现",
    "исключ",
    "воспроизв",
]);
/// Phrases that leave a question open.
static LEAVES_OPEN: Phrases = Phrases::new(&[
    "pen question",
    "till unclear",
    "nknown whether",
    "remains open",
    "not known whether",
    "offene Frage",
    "question ouverte",
    "尚不清楚",
]);
/// Phrases for promises and likes.
static LIKES: Phrases =
    Phrases::new(&["romised", "I like ", "I love ", "I hate ", "I dislike ", "I can't stand", "Ich mag "]);

/// Returns false if a text contains nothing that a summary of this kind must keep.
pub(super) fn may_keep(kind: SummaryKind, text: &str) -> bool {
    match kind {
        SummaryKind::Code => SIGNATURE_STARTS.any_in(text) || DECIDES.any_in(text),
        SummaryKind::Debugging => is_error_text(text) || NARROWS.any_in(text),
        SummaryKind::Research => cites(text) || LEAVES_OPEN.any_in(text),
        SummaryKind::Chat => LIKES.any_in(text),
        SummaryKind::Auto => false,
    }
}

/// Returns the span of a sentence that a summary of this kind must keep, and whether verbatim.
pub(super) fn must_keep(kind: SummaryKind, sentence: &str) -> Option<(IdentifierKind, usize, usize)> {
    const EXACT_CHARS_MAX: usize = 200;
    let whole = |kind| Some((kind, 0, sentence.trim_end_matches(['.', ' ']).len()));
    match kind {
        SummaryKind::Code => signature(sentence)
            .filter(|(start, end)| end - start <= EXACT_CHARS_MAX)
            .map(|(start, end)| (IdentifierKind::Quoted, start, end))
            .or_else(|| if DECIDES.any_in(sentence) { whole(IdentifierKind::Task) } else { None }),
        SummaryKind::Debugging if is_error_text(sentence) && sentence.chars().count() <= EXACT_CHARS_MAX => {
            whole(IdentifierKind::Quoted)
        }
        SummaryKind::Debugging if NARROWS.any_in(sentence) => whole(IdentifierKind::Task),
        SummaryKind::Research if cites(sentence) || LEAVES_OPEN.any_in(sentence) => whole(IdentifierKind::Task),
        SummaryKind::Chat if LIKES.any_in(sentence) => whole(IdentifierKind::Task),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reseed_protocol::CallId;

    fn user(text: &str) -> Message {
        Message::user(text)
    }

    fn assistant(text: &str) -> Message {
        Message::new(Role::Assistant, vec![Part::Text { text: text.into() }])
    }

    fn call(name: &str, arguments: &str) -> Message {
        let call_id: CallId = "c".parse().unwrap();
        Message::new(Role::Assistant, vec![Part::ToolCall { call_id, name: name.into(), arguments: arguments.into() }])
    }

    fn result(output: &str, is_error: bool) -> Message {
        let call_id: CallId = "c".parse().unwrap();
        Message::new(Role::Tool, vec![Part::ToolResult { call_id, output: output.into(), is_error }])
    }

    #[test]
    fn a_conversation_is_recognised_by_what_it_is_made_of() {
        let table: &[(SummaryKind, &[Message])] = &[
            (SummaryKind::Chat, &[]),
            (SummaryKind::Chat, &[user("My cat is called Miso."), assistant("A fine name."), user("We met in Paris.")]),
            (SummaryKind::Chat, &[user("See https://example.org"), assistant("Nice."), user("Yes."), assistant("Ok.")]),
            (
                SummaryKind::Code,
                &[
                    user("Add a parser to src/parse.rs, please."),
                    call("edit", r#"{"path":"src/parse.rs"}"#),
                    result("done", false),
                    assistant("```rust\nfn parse() {}\n```"),
                ],
            ),
            (
                SummaryKind::Code,
                &[
                    user("Schreib mir eine Funktion."),
                    assistant("def zeit(x): gibt es in utils.py"),
                    user("Und in main.py?"),
                ],
            ),
            (
                SummaryKind::Debugging,
                &[
                    user("It crashes when I open two files."),
                    call("bash", r#"{"command":"cargo test"}"#),
                    result("thread 'main' panicked at src/main.rs:4", false),
                    assistant("The lock in src/lock.rs is taken twice."),
                    result("error: build failed", true),
                ],
            ),
            (
                SummaryKind::Debugging,
                &[user("程序崩溃了"), assistant("看日志"), user("报错：error: 42"), assistant("明白了")],
            ),
            (
                SummaryKind::Research,
                &[
                    user("What is known of tides?"),
                    call("web_search", r#"{"query":"tides"}"#),
                    result("1. https://tides.example.org/a", false),
                    assistant("According to the yearbook they rise."),
                ],
            ),
            (
                SummaryKind::Research,
                &[user("Und die Quellen?"), assistant("Laut Meier (2020)…"), assistant("https://x.example")],
            ),
        ];
        for (expected, messages) in table {
            assert_eq!(recognise(messages.iter()), *expected, "{messages:?}");
        }
    }

    #[test]
    fn each_kind_keeps_its_own() {
        use SummaryKind::{Chat, Code, Debugging, Research};
        let kept = |kind, text: &'static str| must_keep(kind, text).map(|(kind, start, end)| (kind, &text[start..end]));
        for (kind, text, expected) in [
            (
                Code,
                "It is `pub fn parse(input: &str) -> Ast`.",
                Some((IdentifierKind::Quoted, "pub fn parse(input: &str) -> Ast")),
            ),
            (Code, "def zeit(x): gibt", Some((IdentifierKind::Quoted, "def zeit(x): gibt"))),
            (Code, "We decided on oak.", Some((IdentifierKind::Task, "We decided on oak"))),
            (Code, "The class of boats (big) is old.", None),
            (Chat, "We decided on oak.", None),
            (Chat, "I like oak.", Some((IdentifierKind::Task, "I like oak"))),
            (Debugging, "error: no such file", Some((IdentifierKind::Quoted, "error: no such file"))),
            (Debugging, "We ruled out the cache.", Some((IdentifierKind::Task, "We ruled out the cache"))),
            (
                Debugging,
                "To reproduce it, start it twice.",
                Some((IdentifierKind::Task, "To reproduce it, start it twice")),
            ),
            (
                Research,
                "According to Meier, tides rise.",
                Some((IdentifierKind::Task, "According to Meier, tides rise")),
            ),
            (Research, "It is still unclear why.", Some((IdentifierKind::Task, "It is still unclear why"))),
            (Research, "Tides rise.", None),
        ] {
            assert_eq!(kept(kind, text), expected, "{kind:?} {text}");
        }
    }
}
