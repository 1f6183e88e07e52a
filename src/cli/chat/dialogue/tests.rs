//! Tests of the dialogue as scripts: lines and frames go in, text and commands come out.

mod asking;
mod compaction;

use super::{
    super::{screen::HELP, tests::whole},
    *,
};
use reseed_client::{Credentials, machine::Output};
use reseed_protocol::command::Address;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const PREFIX: &str = "0123456789abcdef";

/// Plays a script, one step per line: `> TEXT` was typed, `< FRAME` has arrived, `^C`, `connected`, `lost`, `again`
/// (connected and greeted) and `later` (a wait is over). `#N` in a frame is the id of this client's Nth command.
/// Returns what was shown, and what was sent as `→ TYPE PAYLOAD`.
fn play(watched: bool, script: &str) -> (String, Dialogue) {
    play_from(Some("ses"), watched, script)
}

/// Like [`play`], for a chat that continues this session, or begins one.
fn play_from(session: Option<&str>, watched: bool, script: &str) -> (String, Dialogue) {
    let session = session.map(|id| id.parse().unwrap());
    let mut dialogue = Dialogue::new(Screen { color: false }, watched, PREFIX.to_owned(), session);
    let (mut out, mut now) = (String::new(), Instant::now());
    dialogue.machine.connect(now);
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let steps = match line.split_at(1) {
            (">", typed) => {
                let question = dialogue.asks().cloned();
                dialogue.on_line(typed, question.as_ref())
            }
            ("<", frame) => {
                dialogue.machine.frame(now, &whole(&frame.replace('#', &format!("{PREFIX}-"))));
                Vec::new()
            }
            _ if line == "^C" => dialogue.on_interrupt(),
            _ if line == "connected" => {
                dialogue.machine.connected(Credentials::None);
                Vec::new()
            }
            _ if line == "later" => {
                now = dialogue.machine.deadline().unwrap();
                dialogue.machine.tick(now);
                Vec::new()
            }
            _ if line == "again" => {
                // It waits before it connects again.
                now = dialogue.machine.deadline().unwrap();
                dialogue.machine.tick(now);
                assert_eq!(dialogue.machine.poll(), Some(Output::Dial));
                dialogue.machine.connected(Credentials::None);
                let Some(Output::Send(hello)) = dialogue.machine.poll() else { panic!("it says no hello") };
                out += &sent(&hello);
                let hello: Value = serde_json::from_str(&hello).unwrap();
                let welcome = json!({"re": hello["id"], "type": "welcome", "payload": {"heartbeatMs": 30000}});
                dialogue.machine.frame(now, &whole(&welcome.to_string()));
                Vec::new()
            }
            _ if line == "lost" => {
                dialogue.machine.lost(now, Lost::Broken("gone".to_owned()));
                Vec::new()
            }
            _ => panic!("no step: {line}"),
        };
        out.extend(steps.iter().map(shown));
        while let Some(output) = dialogue.machine.poll() {
            match output {
                Output::Send(frame) => out += &sent(&frame),
                Output::Tell(update) => out.extend(dialogue.on_update(update).iter().map(shown)),
                Output::Dial | Output::Renew | Output::HangUp => {}
            }
        }
    }
    (out, dialogue)
}

/// Formats a step without the window's usage, which the tests of the screen cover.
fn shown(step: &Step) -> String {
    match step {
        Step::Show(text) | Step::Note(text) => {
            text.split_inclusive('\n').filter(|line| !line.starts_with("context: ")).collect()
        }
        other => format!("[{other:?}]\n"),
    }
}

fn sent(frame: &str) -> String {
    let frame: Value = serde_json::from_str(frame).unwrap();
    let kind = frame["type"].as_str().unwrap();
    let mut payload = frame["payload"].clone();
    let address = Command::spec_of(kind).unwrap().address;
    assert!(address != Address::Required || frame["sessionId"].is_string(), "{frame}");
    if kind == "open_session" && frame["sessionId"].is_string() {
        payload["sessionId"] = frame["sessionId"].clone();
    }
    format!("→ {kind} {payload}\n")
}

const OPEN: &str = r##"
    connected
    < {"re":"#1","type":"welcome","payload":{"protocolVersion":2,"server":{"name":"reseed","version":"1","instance":"i","provider":"offline","notice":"The built-in model answers."},"features":[],"scopes":[],"connectionId":"c","heartbeatMs":30000,"limits":{"messageBytesMax":100000,"depthMax":1,"queueItemsMax":1,"toolsMax":1}}}
    < {"re":"#2","type":"session_opened","payload":{"sessionId":"ses","epoch":"ep","asOfSeq":0,"model":"offline","strategy":"threshold","entries":[],"queue":[]}}
"##;

/// The output of [`OPEN`].
const OPENED: &str = "→ hello {\"client\":{\"name\":\"reseed-chat\",\"version\":\"VERSION\"},\"clientId\":\"0123456789abcdef\",\"protocolVersion\":2}\n\
    The built-in model answers.\n\
    → open_session {\"entries\":20,\"sessionId\":\"ses\"}\n\
    session ses, model offline, strategy threshold\n";

const TURN: &str = r##"
    > hello
    < {"re":"#3","type":"accepted","payload":{"entryId":"u1","turnId":"t1","queued":false,"asOfSeq":0}}
    < {"sessionId":"ses","seq":1,"type":"entry_appended","payload":{"entry":{"entryId":"u1","parentId":null,"timestamp":"2026-11-21T09:00:00.000Z","type":"message","role":"user","content":[{"type":"text","text":"hello"}]},"turnId":"t1","commandId":"#3"}}
    < {"sessionId":"ses","seq":2,"type":"turn_started","payload":{"turnId":"t1","commandIds":["#3"],"generation":1}}
    < {"sessionId":"ses","type":"item_started","payload":{"itemId":"a1","turnId":"t1","kind":"message"}}
    < {"sessionId":"ses","type":"item_delta","payload":{"itemId":"a1","part":0,"offset":0,"text":"Good "}}
"##;

const ANSWER: &str = r##"
    < {"sessionId":"ses","seq":3,"type":"entry_appended","payload":{"entry":{"entryId":"a1","parentId":"u1","timestamp":"2026-11-21T09:00:01.000Z","type":"message","role":"assistant","content":[{"type":"text","text":"Good morning."}],"stopReason":"stop"},"turnId":"t1"}}
    < {"sessionId":"ses","seq":4,"type":"turn_finished","payload":{"turnId":"t1","status":"completed","finishReason":"stop"}}
"##;

/// Plays scripts one after another and compares the output after [`OPEN`].
fn check(scripts: &[&str], expected: &str, idle: bool) {
    let script = [&[OPEN], scripts].concat().concat();
    let (out, dialogue) = play(true, &script);
    let opened = OPENED.replace("VERSION", env!("CARGO_PKG_VERSION"));
    let after = out.strip_prefix(&opened).unwrap_or_else(|| panic!("opening shows\n{out}"));
    assert_eq!(after, expected);
    assert_eq!(dialogue.is_idle(), idle, "idle after:\n{after}");
}

#[test]
fn an_answer_is_shown_as_it_comes_and_ended_from_its_entry() {
    check(&[TURN], "→ user_input {\"input\":\"hello\"}\nGood ", false);
    check(&[TURN, ANSWER], "→ user_input {\"input\":\"hello\"}\nGood morning.\n", true);
}

#[test]
fn frames_that_were_seen_or_are_not_known_change_nothing() {
    let twice = r##"
        < {"sessionId":"ses","seq":2,"type":"turn_started","payload":{"turnId":"t1","commandIds":[],"generation":1}}
        < {"sessionId":"ses","type":"surprise","payload":{}}
        < nonsense
        < {"sessionId":"ses","seq":5,"type":"surprise","payload":{}}
    "##;
    check(&[TURN, ANSWER, twice], "→ user_input {\"input\":\"hello\"}\nGood morning.\n", true);
}

#[test]
fn a_hole_in_the_log_opens_the_session_again() {
    let hole = r##"< {"sessionId":"ses","seq":9,"type":"queue_released","payload":{}}"##;
    let again = r#"{"entries":20,"resume":{"epoch":"ep","seq":0},"sessionId":"ses"}"#;
    check(&[hole], &format!("→ close_session {{}}\n→ open_session {again}\n"), true);
}

#[test]
fn after_a_lost_connection_it_resumes_and_asks_again_what_had_no_reply() {
    let resumed = r##"
        > /compact
        lost
        again
        < {"re":"#6","type":"session_opened","payload":{"sessionId":"ses","epoch":"ep","asOfSeq":4,"resumed":"replay","queue":[]}}
    "##;
    check(
        &[TURN, resumed, ANSWER],
        "→ user_input {\"input\":\"hello\"}\nGood → start_compaction {}\n\
         \n\
         gone; reconnecting (Ctrl-C leaves)\n\
         → hello {\"client\":{\"name\":\"reseed-chat\",\"version\":\"VERSION\"},\"clientId\":\"0123456789abcdef\",\"protocolVersion\":2}\n\
         connected again\n\
         → open_session {\"entries\":20,\"resume\":{\"epoch\":\"ep\",\"items\":[{\"itemId\":\"a1\",\"offset\":5,\"part\":0}],\"seq\":2},\"sessionId\":\"ses\"}\n\
         → start_compaction {}\n\
         morning.\n"
            .replace("VERSION", env!("CARGO_PKG_VERSION"))
            .as_str(),
        false,
    );
}

#[test]
fn an_answer_that_only_began_is_named_when_the_session_is_resumed_and_its_end_is_not_shown() {
    let resumed = r##"
        lost
        again
        < {"re":"#5","type":"session_opened","payload":{"sessionId":"ses","epoch":"ep","asOfSeq":2,"resumed":"replay","queue":[]}}
        < {"sessionId":"ses","type":"item_aborted","payload":{"itemId":"a1","reason":"interrupted"}}
    "##;
    let (out, _) = play(true, &[OPEN, &begun(), resumed].concat());
    let resume = r#""resume":{"epoch":"ep","items":[{"itemId":"a1","offset":0,"part":0}],"seq":2}"#;
    assert!(out.contains(resume), "{out}");
    assert!(!out.contains("broke off"), "{out}");
}

#[test]
fn a_snapshot_shows_what_was_missed_and_takes_up_the_running_answer() {
    let snapshot = r##"
        lost
        again
        < {"re":"#5","type":"session_opened","payload":{"sessionId":"ses","epoch":"ep","asOfSeq":40,"resumed":"snapshot","queue":[],
        "turn":{"turnId":"t9","items":[{"itemId":"a9","parts":[{"type":"text","text":"And "}]}]},"entries":[
        {"entryId":"u1","parentId":null,"timestamp":"2026-11-21T09:00:00.000Z","type":"message","role":"user","content":[{"type":"text","text":"hello"}]},
        {"entryId":"a1","parentId":"u1","timestamp":"2026-11-21T09:00:01.000Z","type":"message","role":"assistant","content":[{"type":"text","text":"Good morning."}]},
        {"entryId":"u9","parentId":"a1","timestamp":"2026-11-21T09:00:02.000Z","type":"message","role":"user","content":[{"type":"text","text":"and now?"}]}]}}
        < {"sessionId":"ses","type":"item_delta","payload":{"itemId":"a9","part":0,"offset":4,"text":"so on"}}
    "##;
    let snapshot = snapshot
        .replace(",\n        \"turn\"", ",\"turn\"")
        .replace("[\n        {", "[{")
        .replace("},\n        {", "},{");
    let script = [OPEN, TURN, ANSWER, &snapshot].concat();
    let (out, dialogue) = play(true, &script);
    assert!(out.ends_with("\n> and now?\nAnd so on"), "{out}");
    assert!(!dialogue.is_idle());
}

#[test]
fn ctrl_c_cancels_what_runs_and_leaves_the_second_time() {
    let cancelled = "→ user_input {\"input\":\"hello\"}\nGood → cancel_turn {\"turnId\":\"t1\"}\n";
    check(&[TURN, "^C"], cancelled, false);
    check(&[TURN, "^C\n^C"], &format!("{cancelled}[Quit]\n"), false);
    let queued = r##"< {"sessionId":"ses","seq":1,"type":"turn_started","payload":{"turnId":"t1","commandIds":["#9"],"generation":1}}"##;
    check(&[queued, "\n^C"], "→ cancel_turn {\"turnId\":\"t1\"}\n", false);
    let foreign = queued.replace("#9", "x");
    check(&[&foreign, "\n^C"], "the turn goes on: this chat did not start it\n[Quit]\n", false);
    check(&["^C"], "Ctrl-C again leaves\n", true);
    check(&["^C\n> \n^C"], "Ctrl-C again leaves\nCtrl-C again leaves\n", true);
    let job = r##"< {"sessionId":"ses","type":"compaction_started","payload":{"jobId":"j","trigger":"manual","background":false}}"##;
    check(&[job, "\n^C"], "compacting the context\nCtrl-C again leaves\n", true);
    let asked = "\n> /compact\n< {\"re\":\"#3\",\"type\":\"ok\",\"payload\":{\"jobId\":\"j\",\"asOfSeq\":0}}\n";
    let own = "→ start_compaction {}\ncompacting the context\n→ cancel_compaction {\"jobId\":\"j\"}\n";
    check(&[asked, job, "\n^C"], own, false);
}

#[test]
fn lines_are_said_and_commands_are_sent() {
    let table = [
        (" hello ", "→ user_input {\"input\":\"hello\"}\n"),
        ("1/2", "→ user_input {\"input\":\"1/2\"}\n"),
        ("//etc/hosts", "→ user_input {\"input\":\"/etc/hosts\"}\n"),
        ("two\n lines\n", "→ user_input {\"input\":\"two\\n lines\"}\n"),
        ("/etc/hosts has\n127.0.0.1", "→ user_input {\"input\":\"/etc/hosts has\\n127.0.0.1\"}\n"),
        ("/context", "→ get_context_info {}\n"),
        ("/compact", "→ start_compaction {}\n"),
        ("/compact keep\nthe times", "→ start_compaction {\"instructions\":\"keep\\nthe times\"}\n"),
        ("/undo", "→ undo_compaction {}\n"),
        ("/retry", "→ retry_turn {}\n"),
        ("/quit", "[Quit]\n"),
        ("/allow", "no tool waits for an answer\n"),
        ("/contest", "there is no command /contest; /help lists them\n"),
        ("  ", ""),
    ];
    for (line, expected) in table {
        let (before, mut dialogue) = play(true, OPEN);
        assert!(before.ends_with("strategy threshold\n"), "{before}");
        let mut out: String = dialogue.on_line(line, None).iter().map(shown).collect();
        while let Some(Output::Send(frame)) = dialogue.machine.poll() {
            out += &sent(&frame);
        }
        assert_eq!(out, expected, "{line:?}");
        let is_wrong = line == "/contest";
        assert_eq!(dialogue.has_failed, is_wrong, "{line:?}");
    }
}

#[test]
fn every_command_of_the_help_exists() {
    for (usage, _) in HELP {
        let (_, mut dialogue) = play(true, OPEN);
        let usage = usage.replace("always|stop", "always").replace(['[', ']'], "");
        dialogue.on_line(&usage, None);
        assert!(!dialogue.has_failed, "{usage}");
    }
}

#[test]
fn a_refusal_is_shown_and_a_session_that_ends_ends_the_chat() {
    let refused = r##"
        > /compact
        < {"re":"#3","type":"error","payload":{"code":"nothing_to_compact","message":"there is room","retriable":false}}
    "##;
    check(&[refused], "→ start_compaction {}\nerror: there is room (nothing_to_compact)\n", true);
    let deleted = r##"< {"sessionId":"ses","type":"session_closed","payload":{"code":"deleted","message":"the session was deleted","retriable":false}}"##;
    check(&[deleted], "[Fail(\"the session was deleted\")]\n", true);
    let (_, mut steered) = play(true, OPEN);
    let message = "gone\u{1b}[2J".to_owned();
    let steps = steered.on_update(Update::Stopped(Stop::Lost(Lost::Refused(message))));
    assert_eq!(steps, [Step::Fail("gone\u{fffd}[2J".to_owned())]);
}

#[test]
fn a_server_that_is_not_ready_is_waited_for_and_one_that_is_not_there_ends_the_chat() {
    let lost = |lost| {
        let mut dialogue = Dialogue::new(Screen { color: false }, false, PREFIX.to_owned(), None);
        dialogue.on_update(Update::Disconnected { lost, reached: false, retry_after: Duration::ZERO })
    };
    let unready = lost(Lost::Unready("503: loading".to_owned()));
    assert_eq!(unready, [Step::Note("503: loading; waiting until the server is ready\n".to_owned())]);
    let [Step::Fail(why)] = &lost(Lost::Broken("refused".to_owned()))[..] else { panic!("it goes on") };
    assert!(why.starts_with("refused; start the server"), "{why}");
}

#[test]
fn the_first_session_that_cannot_be_opened_ends_the_chat() {
    let refused = r##"
        connected
        < {"re":"#1","type":"error","payload":{"code":"unauthenticated","message":"who are you","retriable":false}}
    "##;
    let (out, _) = play(true, refused);
    assert!(
        out.ends_with("[Fail(\"who are you (closed with 4401); name a token of the server's with --token\")]\n"),
        "{out}"
    );
}

#[test]
fn a_session_that_cannot_be_opened_for_now_is_told_once_and_ends_a_chat_that_has_shown_nothing() {
    let refused = |id: u32| {
        format!(
            r##"< {{"re":"#{id}","type":"error","payload":{{"code":"overloaded","message":"full","retriable":true}}}}"##
        )
    };
    let welcome = OPEN.lines().filter(|line| !line.contains("session_opened")).collect::<Vec<_>>().join("\n");
    let script = |times: u32| {
        let refusals: Vec<String> = (2..2 + times).map(refused).collect();
        format!("{welcome}\n{}", refusals.join("\nlater\n"))
    };
    let (out, _) = play(true, &script(4));
    assert_eq!(out.matches("full (overloaded); trying again").count(), 1, "{out}");
    assert!(!out.contains("[Fail"), "{out}");
    let (out, _) = play(true, &script(5));
    assert!(out.ends_with("[Fail(\"full (overloaded)\")]\n"), "{out}");
}

#[test]
fn input_that_waits_is_awaited_too() {
    let queued = r##"
        > and?
        < {"re":"#4","type":"accepted","payload":{"queued":true,"asOfSeq":2}}
        < {"sessionId":"ses","seq":3,"type":"queue_item_added","payload":{"position":0,"item":{"commandId":"#4","content":[]}}}
        < {"sessionId":"ses","seq":4,"type":"turn_finished","payload":{"turnId":"t1","status":"cancelled"}}
    "##;
    check(
        &[TURN, queued],
        "→ user_input {\"input\":\"hello\"}\nGood → user_input {\"input\":\"and?\"}\n\
         \nqueued: it is asked when the running turn has ended\ncancelled\n",
        false,
    );
}

/// A chat that is connected and has no session yet.
const GREETED: &str = r##"
    connected
    < {"re":"#1","type":"welcome","payload":{"protocolVersion":2,"server":{"name":"reseed","version":"1","instance":"i","provider":"offline"},"features":[],"scopes":[],"connectionId":"c","heartbeatMs":30000,"limits":{"messageBytesMax":100000,"depthMax":1,"queueItemsMax":1,"toolsMax":1}}}
"##;

#[test]
fn a_session_is_opened_with_what_is_said_first() {
    let greeted = |script: &str| {
        let (out, dialogue) = play_from(None, true, &[GREETED, script].concat());
        (out.split_once('\n').unwrap().1.to_owned(), dialogue.is_idle())
    };
    let nothing = "nothing was said yet: what you say first begins a session\n";
    let cases =
        [("", "", true), ("> /context", nothing, true), ("> hello", "→ open_session {\"entries\":20}\n", false)];
    for (script, shown, idle) in cases {
        assert_eq!(greeted(script), (shown.to_owned(), idle), "{script}");
    }
    // Two messages are typed before the session exists, and the connection is lost. The same command creates the
    // session once, and both messages follow it in order.
    let (out, _) = greeted("> hello\n> and?\nlost\nagain");
    let sent: Vec<&str> = out.lines().filter_map(|line| line.strip_prefix("→ ")?.split(' ').next()).collect();
    assert_eq!(sent, ["open_session", "hello", "open_session"]);
    let opened = r##"< {"re":"#2","type":"session_opened","payload":{"sessionId":"ses","epoch":"ep","asOfSeq":0,"model":"offline","strategy":"threshold","entries":[],"queue":[]}}"##;
    let (again, _) = greeted(&format!("> hello\n> and?\nlost\nagain\n{opened}"));
    let shown = "session ses, model offline, strategy threshold\n\
        → user_input {\"input\":\"hello\"}\n→ user_input {\"input\":\"and?\"}\n";
    assert_eq!(again.strip_prefix(&out), Some(shown));
}

#[test]
fn what_was_queued_before_the_connection_was_lost_is_counted_once() {
    let lost = r##"
        > and?
        < {"re":"#4","type":"accepted","payload":{"queued":true,"asOfSeq":2}}
        lost
        again
        < {"re":"#6","type":"session_opened","payload":{"sessionId":"ses","epoch":"ep","asOfSeq":3,"resumed":"replay","queue":[{"commandId":"#4","content":[]}]}}
        < {"sessionId":"ses","seq":3,"type":"queue_item_added","payload":{"position":0,"item":{"commandId":"#4","content":[]}}}
    "##;
    let (_, dialogue) = play(true, &[OPEN, TURN, lost].concat());
    assert_eq!(dialogue.snapshot().unwrap().queue.len(), 1);
}

#[test]
fn a_pipe_is_shown_no_thoughts_and_no_progress() {
    let thinking = r##"
        < {"sessionId":"ses","type":"item_started","payload":{"itemId":"a1","turnId":"t1","kind":"message"}}
        < {"sessionId":"ses","type":"item_delta","payload":{"itemId":"a1","part":0,"offset":0,"kind":"reasoning","text":"hm"}}
        < {"sessionId":"ses","type":"item_delta","payload":{"itemId":"a1","part":1,"offset":0,"text":"Good"}}
    "##;
    for (watched, expected) in [(true, "hm\nGood"), (false, "Good")] {
        let (out, _) = play(watched, &[OPEN, thinking].concat());
        assert!(out.ends_with(&format!("strategy threshold\n{expected}")), "{watched}: {out}");
    }
}

/// Returns an answer of these texts, as its entry.
fn answer_of(texts: &[&str]) -> Value {
    let parts: Vec<_> = texts.iter().map(|text| json!({ "type": "text", "text": text })).collect();
    json!({ "entryId": "a1", "parentId": "u1", "timestamp": "2026-11-21T09:00:01.000Z", "type": "message",
            "role": "assistant", "content": parts, "stopReason": "stop" })
}

/// Returns a frame of the session.
fn frame(kind: &str, payload: &Value) -> String {
    format!("< {}\n", json!({ "sessionId": "ses", "type": kind, "payload": payload }))
}

/// Returns [`TURN`] up to the start of its answer.
fn begun() -> String {
    TURN.lines().filter(|line| !line.contains("item_delta")).map(|line| format!("{line}\n")).collect()
}

#[test]
fn whatever_comes_the_whole_text_is_shown_once() {
    type Case<'a> = (&'a [(u32, u64, &'a str)], &'a [&'a str], &'a str);
    let table: [Case<'_>; 9] = [
        (&[], &["all of it"], "all of it\n"),
        (&[(0, 0, "all "), (0, 4, "of it")], &["all of it"], "all of it\n"),
        (&[(0, 0, "all "), (0, 0, "all of it")], &["all of it"], "all of it\n"),
        (&[(0, 0, "all "), (0, 0, "all ")], &["all of it"], "all of it\n"),
        (&[(0, 0, "all "), (0, 6, " it")], &["all of it"], "all of it\n"),
        (&[(0, 0, "🚢 a"), (0, 2, " and b")], &["🚢 and b"], "🚢 and b\n"),
        (&[(0, 0, "🚢 a"), (0, 3, "and b")], &["🚢 and b"], "🚢 and b\n"),
        (&[(0, 0, "one"), (1, 0, "two")], &["one", "two"], "one\ntwo\n"),
        (&[(0, 0, "first try")], &["second"], "first try\nsecond\n"),
    ];
    for (deltas, whole, shown) in table {
        let deltas = deltas.iter().map(|(part, offset, text)| {
            frame("item_delta", &json!({ "itemId": "a1", "part": part, "offset": offset, "text": text }))
        });
        let end = json!({ "sessionId": "ses", "seq": 3, "type": "entry_appended",
                          "payload": { "entry": answer_of(whole), "turnId": "t1" } });
        let script = [OPEN.to_owned(), begun(), deltas.collect(), format!("< {end}")].concat();
        let (out, _) = play(true, &script);
        assert_eq!(out.split_once("{\"input\":\"hello\"}\n").unwrap().1, shown, "{script}");
    }
}

#[test]
fn an_answer_that_ended_while_the_connection_was_lost_is_shown_from_where_it_stood() {
    let opened = json!({ "re": "#5", "type": "session_opened", "payload": {
        "sessionId": "ses", "epoch": "ep", "asOfSeq": 4, "resumed": "snapshot", "queue": [],
        "entries": [answer_of(&["Good morning."])],
    } });
    let (out, dialogue) = play(false, &[OPEN, TURN, &format!("lost\nagain\n< {opened}")].concat());
    assert!(out.contains("\"hello\"}\nGood \ngone; reconnecting\n"), "{out}");
    assert!(out.ends_with("\nmorning.\n"), "{out}");
    assert!(dialogue.is_idle());
}

#[test]
fn no_text_of_a_model_steers_the_terminal() {
    let text = "\u{1b}[2Jwiped\u{202e} \u{9b}31m";
    let delta = frame("item_delta", &json!({ "itemId": "a1", "part": 0, "offset": 0, "text": text }));
    let thought = json!({ "itemId": "a2", "part": 0, "offset": 0, "kind": "reasoning", "text": text });
    let script = [OPEN, &begun(), &delta, &frame("item_delta", &thought)].concat();
    let (out, _) = play(true, &script);
    assert_eq!(out.matches("[2Jwiped 31m").count(), 2, "{out}");
    assert!(!out.contains(|c: char| c.is_control() && c != '\n' || c == '\u{202e}'), "{out:?}");
}
