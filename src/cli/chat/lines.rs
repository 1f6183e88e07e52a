//! What a person types: text for the model, or a command behind a slash.

use reseed_protocol::command::Decision;
use std::io::{BufRead, Read};

/// Bytes that a line may have: what a server takes in one message by default.
const LINE_BYTES_MAX: u64 = 1024 * 1024;

/// Lines that may have been read and not been used: a person is not that fast, and a pipe waits.
pub(super) const LINES_WAITING_MAX: usize = 16;

/// The lines of `/help`.
pub(super) const HELP: &[(&str, &str)] = &[
    ("/context", "what is in the window, by kind"),
    ("/compact [INSTRUCTIONS]", "summarise the older part now"),
    ("/preview [INSTRUCTIONS]", "show what /compact would do; /apply does exactly that"),
    ("/apply", "do what /preview has shown"),
    ("/undo", "take the last compaction back"),
    ("/pin N", "keep a line of the tree word for word; /unpin N lets it go"),
    ("/unpin N", "let a pinned line go"),
    ("/strategy NAME", "choose how this session is compacted"),
    ("/cancel", "stop the answer or the compaction (Ctrl-C does the same; pressed again, it leaves)"),
    ("/allow [always]", "let the tool run that asks; always: every later call that is exactly the same, too"),
    ("/reject [always|stop] [WHY]", "do not let it run; the model reads why; stop ends the answer"),
    ("/tools", "list tools, MCP servers and lasting answers; /tools off NAME, /tools on NAME, /tools ask N"),
    ("/retry", "ask again after a failure"),
    ("/steer TEXT", "say something to the running turn"),
    ("/queue", "what waits; /queue remove N, /queue first N"),
    ("/tree", "the branches of this session, numbered"),
    ("/go N", "go on from a line of the tree; /go N summary [INSTRUCTIONS] keeps a summary of what is left"),
    ("/back [COUNT]", "take back the last question, or so many, to ask differently"),
    ("/fork [N]", "make a session of the path to a line of the tree, or to here, and open it"),
    ("/label N [NAME]", "name a line of the tree; without a name, take its name away"),
    ("/sessions", "list the sessions"),
    ("/open ID", "go to another session, by its id or its number in the list"),
    ("/new", "leave this session; what is said next begins a new one"),
    ("/rename NAME", "name this session"),
    ("/help", "this list"),
    ("/quit", "leave; the session stays"),
    ("//TEXT", "say a text that begins with a slash"),
];

/// A line, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    Nothing,
    Say(String),
    Context,
    Compact(Option<String>),
    Preview(Option<String>),
    Apply,
    Undo,
    /// Keep an entry of the tree, by its number or id, or let it go.
    Pin {
        which: String,
        pinned: bool,
    },
    Strategy(String),
    Cancel,
    Retry,
    /// Answer the tool that asks.
    Answer {
        decision: Decision,
        why: Option<String>,
    },
    Tools(ToolsLine),
    Sessions,
    Open(String),
    New,
    Rename(String),
    Steer(String),
    Queue(QueueLine),
    Tree,
    Go(Go),
    /// Take back so many questions, at least one.
    Back(usize),
    /// Forks at this line of the tree, by its number or id; `None` forks the whole open chat.
    Fork(Option<String>),
    Label {
        which: String,
        label: Option<String>,
    },
    Help,
    Quit,
    /// A command that there is not, or one that lacks its word: what to tell.
    Wrong(String),
}

/// Where to go on from, by the number of a line of the tree or an entry's id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Go {
    pub(super) which: String,
    /// True to make a summary of what is left.
    pub(super) summarize: bool,
    pub(super) instructions: Option<String>,
}

/// What to do about the tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ToolsLine {
    Show,
    /// Switch these off.
    Off(Vec<String>),
    /// Switch these on.
    On(Vec<String>),
    /// Withdraw the lasting answer of this number.
    Ask(usize),
}

/// What to do about what waits, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueLine {
    Show,
    Remove(usize),
    First(usize),
}

/// Understands a line.
pub(super) fn parse(line: &str) -> Line {
    let text = line.trim();
    if text.is_empty() {
        return Line::Nothing;
    }
    if let Some(said) = text.strip_prefix("//") {
        return Line::Say(format!("/{said}"));
    }
    let Some(command) = text.strip_prefix('/') else { return Line::Say(text.to_owned()) };
    match parse_command(command) {
        // A pasted block that begins with a path.
        Line::Wrong(_) if text.contains('\n') => Line::Say(text.to_owned()),
        line => line,
    }
}

/// Understands what comes behind a slash.
fn parse_command(command: &str) -> Line {
    let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    let rest = rest.trim();
    let wanted = |what: &str| Line::Wrong(format!("/{name} needs {what}"));
    match name {
        "context" => Line::Context,
        "compact" => Line::Compact((!rest.is_empty()).then(|| rest.to_owned())),
        "preview" => Line::Preview((!rest.is_empty()).then(|| rest.to_owned())),
        "apply" => Line::Apply,
        "undo" => Line::Undo,
        "pin" | "unpin" if rest.is_empty() => wanted("a line's number in /tree, or an entry's id"),
        "pin" | "unpin" => Line::Pin { which: rest.to_owned(), pinned: name == "pin" },
        "strategy" if rest.is_empty() => wanted("a strategy's name"),
        "strategy" => Line::Strategy(rest.to_owned()),
        "cancel" => Line::Cancel,
        "retry" => Line::Retry,
        "allow" => match rest {
            "" => Line::Answer { decision: Decision::AllowOnce, why: None },
            "always" => Line::Answer { decision: Decision::AllowAlways, why: None },
            _ => Line::Wrong("/allow takes nothing, or `always`".to_owned()),
        },
        "reject" => reject(rest),
        "tools" => tools(rest),
        "sessions" => Line::Sessions,
        "open" if rest.is_empty() => wanted("a session's id, or its number in /sessions"),
        "open" => Line::Open(rest.to_owned()),
        "new" => Line::New,
        "rename" if rest.is_empty() => wanted("a name"),
        "rename" => Line::Rename(rest.to_owned()),
        "steer" if rest.is_empty() => wanted("a text"),
        "steer" => Line::Steer(rest.to_owned()),
        "queue" => queue(rest),
        "tree" => Line::Tree,
        "go" if rest.is_empty() => wanted("a line's number in /tree, or an entry's id"),
        "go" => go(rest),
        "back" if rest.is_empty() => Line::Back(1),
        "back" => rest.parse().ok().filter(|count| *count > 0).map_or_else(|| wanted("a count"), Line::Back),
        "fork" => Line::Fork((!rest.is_empty()).then(|| rest.to_owned())),
        "label" if rest.is_empty() => wanted("a line's number in /tree, or an entry's id"),
        "label" => {
            let (which, label) = first_word(rest);
            Line::Label { which: which.to_owned(), label }
        }
        "help" => Line::Help,
        "quit" | "exit" => Line::Quit,
        _ => Line::Wrong(format!("there is no command /{name}; /help lists them")),
    }
}

/// The first word, and what comes behind it, if anything does.
fn first_word(text: &str) -> (&str, Option<String>) {
    match text.split_once(char::is_whitespace) {
        Some((word, rest)) => (word, Some(rest.trim().to_owned())),
        None => (text, None),
    }
}

fn go(rest: &str) -> Line {
    let (which, more) = first_word(rest);
    let more = more.unwrap_or_default();
    let (word, instructions) = first_word(&more);
    match word {
        "" | "summary" => Line::Go(Go { which: which.to_owned(), summarize: word == "summary", instructions }),
        _ => Line::Wrong("/go takes a line's number, and behind it nothing, or `summary` and instructions".to_owned()),
    }
}

fn reject(rest: &str) -> Line {
    let (word, why) = first_word(rest);
    let decision = match word {
        "always" => Decision::RejectAlways,
        "stop" => Decision::RejectAndStop,
        _ => {
            let why = (!rest.is_empty()).then(|| rest.to_owned());
            return Line::Answer { decision: Decision::RejectOnce, why };
        }
    };
    Line::Answer { decision, why: why.filter(|why| !why.is_empty()) }
}

fn tools(rest: &str) -> Line {
    let (word, names) = first_word(rest);
    let names: Vec<String> = names.unwrap_or_default().split_whitespace().map(str::to_owned).collect();
    let number = names.first().and_then(|number| number.parse().ok());
    match word {
        "" => Line::Tools(ToolsLine::Show),
        "off" if !names.is_empty() => Line::Tools(ToolsLine::Off(names)),
        "on" if !names.is_empty() => Line::Tools(ToolsLine::On(names)),
        "ask" if number.is_some() => Line::Tools(ToolsLine::Ask(number.unwrap_or_default())),
        _ => Line::Wrong("/tools lists them; /tools off NAME, /tools on NAME and /tools ask N change them".to_owned()),
    }
}

fn queue(rest: &str) -> Line {
    let (word, number) = first_word(rest);
    let number = number.and_then(|number| number.parse().ok());
    match (word, number) {
        ("", _) => Line::Queue(QueueLine::Show),
        ("remove", Some(number)) => Line::Queue(QueueLine::Remove(number)),
        ("first", Some(number)) => Line::Queue(QueueLine::First(number)),
        _ => Line::Wrong("/queue lists what waits; /queue remove N and /queue first N change it".to_owned()),
    }
}

/// Reads the next line, without its end. `None` at the end of the input.
///
/// # Errors
/// What the input says, or that a line is longer than a message may be.
pub(super) fn read(input: &mut impl BufRead) -> std::io::Result<Option<String>> {
    let mut line = Vec::new();
    let mut within = input.take(LINE_BYTES_MAX);
    if within.read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') && within.limit() == 0 {
        return Err(std::io::Error::other(format!("a line has more than {LINE_BYTES_MAX} bytes")));
    }
    Ok(Some(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_understood() {
        let say = |text: &str| Line::Say(text.to_owned());
        let go_to = |which: &str, summarize, instructions: Option<&str>| {
            Line::Go(Go { which: which.to_owned(), summarize, instructions: instructions.map(ToOwned::to_owned) })
        };
        let open = |which: &str| Line::Open(which.to_owned());
        let table = [
            ("", Line::Nothing),
            ("  \t", Line::Nothing),
            (" hello ", say("hello")),
            ("1/2", say("1/2")),
            ("//etc/hosts", say("/etc/hosts")),
            ("two\n lines\n", say("two\n lines")),
            ("/etc/hosts has\n127.0.0.1", say("/etc/hosts has\n127.0.0.1")),
            ("/compact keep\nthe times", Line::Compact(Some("keep\nthe times".to_owned()))),
            ("/context", Line::Context),
            ("/compact", Line::Compact(None)),
            ("/compact keep the times", Line::Compact(Some("keep the times".to_owned()))),
            ("/preview", Line::Preview(None)),
            ("/preview the decks", Line::Preview(Some("the decks".to_owned()))),
            ("/apply", Line::Apply),
            ("/undo", Line::Undo),
            ("/pin 3", Line::Pin { which: "3".to_owned(), pinned: true }),
            ("/unpin p3v8x2kq7mna", Line::Pin { which: "p3v8x2kq7mna".to_owned(), pinned: false }),
            ("/pin", Line::Wrong("/pin needs a line's number in /tree, or an entry's id".to_owned())),
            ("/strategy truncate", Line::Strategy("truncate".to_owned())),
            ("/strategy", Line::Wrong("/strategy needs a strategy's name".to_owned())),
            ("/open 2", open("2")),
            ("/open", Line::Wrong("/open needs a session's id, or its number in /sessions".to_owned())),
            ("/rename  The walk ", Line::Rename("The walk".to_owned())),
            ("/steer a bit shorter", Line::Steer("a bit shorter".to_owned())),
            ("/steer", Line::Wrong("/steer needs a text".to_owned())),
            ("/queue", Line::Queue(QueueLine::Show)),
            ("/queue remove 2", Line::Queue(QueueLine::Remove(2))),
            ("/queue first 3", Line::Queue(QueueLine::First(3))),
            (
                "/queue drop 2",
                Line::Wrong("/queue lists what waits; /queue remove N and /queue first N change it".to_owned()),
            ),
            ("/tree", Line::Tree),
            ("/go 3", go_to("3", false, None)),
            ("/go p3v8x2kq7mna summary", go_to("p3v8x2kq7mna", true, None)),
            ("/go 3 summary  the ferry times ", go_to("3", true, Some("the ferry times"))),
            (
                "/go 3 quickly",
                Line::Wrong(
                    "/go takes a line's number, and behind it nothing, or `summary` and instructions".to_owned(),
                ),
            ),
            ("/back", Line::Back(1)),
            ("/back 2", Line::Back(2)),
            ("/back 0", Line::Wrong("/back needs a count".to_owned())),
            ("/fork", Line::Fork(None)),
            ("/fork 2", Line::Fork(Some("2".to_owned()))),
            ("/label 2 the start", Line::Label { which: "2".to_owned(), label: Some("the start".to_owned()) }),
            ("/label 2", Line::Label { which: "2".to_owned(), label: None }),
            ("/allow", Line::Answer { decision: Decision::AllowOnce, why: None }),
            ("/allow always", Line::Answer { decision: Decision::AllowAlways, why: None }),
            ("/allow it", Line::Wrong("/allow takes nothing, or `always`".to_owned())),
            ("/reject", Line::Answer { decision: Decision::RejectOnce, why: None }),
            ("/reject not now", Line::Answer { decision: Decision::RejectOnce, why: Some("not now".to_owned()) }),
            ("/reject always", Line::Answer { decision: Decision::RejectAlways, why: None }),
            ("/reject stop  it", Line::Answer { decision: Decision::RejectAndStop, why: Some("it".to_owned()) }),
            ("/tools", Line::Tools(ToolsLine::Show)),
            ("/tools off a b", Line::Tools(ToolsLine::Off(vec!["a".to_owned(), "b".to_owned()]))),
            ("/tools on a", Line::Tools(ToolsLine::On(vec!["a".to_owned()]))),
            ("/tools ask 2", Line::Tools(ToolsLine::Ask(2))),
            (
                "/tools off",
                Line::Wrong(
                    "/tools lists them; /tools off NAME, /tools on NAME and /tools ask N change them".to_owned(),
                ),
            ),
            ("/quit", Line::Quit),
            ("/contest", Line::Wrong("there is no command /contest; /help lists them".to_owned())),
        ];
        for (line, expected) in table {
            assert_eq!(parse(line), expected, "{line:?}");
        }
    }

    #[test]
    fn every_command_of_the_help_exists() {
        for (usage, _) in HELP {
            let usage = usage.replace("COUNT", "1").replace("always|stop", "always").replace(['[', ']'], "");
            let usage = usage.as_str();
            assert!(!matches!(parse(usage), Line::Wrong(_)), "{usage}");
        }
    }

    #[test]
    fn lines_end_where_they_end_and_a_line_without_end_is_refused() {
        let mut input = std::io::Cursor::new(b"one\r\n\ntwo".to_vec());
        let lines: Vec<_> = std::iter::from_fn(|| read(&mut input).unwrap()).collect();
        assert_eq!(lines, ["one", "", "two"]);
        assert!(read(&mut std::io::BufReader::new(std::io::repeat(b'x'))).is_err());
    }
}
