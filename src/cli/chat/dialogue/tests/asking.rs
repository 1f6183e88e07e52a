//! Tools that ask before they run, and their calls in a line.

use super::*;
use reseed_protocol::ApprovalId;

const HASH: &str = "0d5a8b4f31e6c2979ab4d8f07c15e3a26b90d47f8e1c35a2907bd6e4f81c3a52";

/// Returns an answer that calls `shell`, as the event of this number.
fn called(seq: u64) -> String {
    let call = json!({ "type": "tool_call", "toolCallId": "c1", "name": "shell", "arguments": r#"{"command":["rm","-r","build"]}"# });
    let entry = json!({ "entryId": "a1", "parentId": "u1", "timestamp": "2026-11-21T09:00:01.000Z", "type": "message",
                        "role": "assistant", "content": [call], "stopReason": "tool_calls" });
    event(seq, "entry_appended", &json!({ "entry": entry, "turnId": "t1" }))
}

fn event(seq: u64, kind: &str, payload: &Value) -> String {
    format!("< {}\n", json!({ "sessionId": "ses", "seq": seq, "type": kind, "payload": payload }))
}

/// Returns the question of this number about the call.
fn asked(seq: u64, id: &str) -> String {
    let text = r#"{"command":["sh","-c","cd a\nrm -r b\u202euild"]}"#;
    let payload = json!({
        "approvalId": id, "toolCallId": "c1", "turnId": "t1", "name": "shell", "arguments": text, "argumentsHash": HASH,
        "display": text, "place": "server",
        "reason": "`shell` may destroy what it changes.",
        "options": ["allow_once", "allow_always", "reject_once", "reject_always"], "generation": 1,
        "expiresAt": "2026-11-22T09:18:22.414Z",
    });
    event(seq, "approval_request", &payload)
}

fn decided(seq: u64, id: &str, outcome: &str, option: Option<&str>) -> String {
    let mut payload = json!({ "toolCallId": "c1", "outcome": outcome, "approvalId": id });
    if let Some(option) = option {
        payload["option"] = option.into();
    }
    event(seq, "call_resolved", &payload)
}

fn result(seq: u64, output: &str, is_error: bool) -> String {
    let part = json!({ "type": "tool_result", "toolCallId": "c1", "output": output, "isError": is_error });
    let entry = json!({ "entryId": "r1", "parentId": "a1", "timestamp": "2026-11-21T09:00:02.500Z", "type": "message",
                        "role": "tool", "content": [part] });
    event(seq, "entry_appended", &json!({ "entry": entry, "turnId": "t1" }))
}

/// Returns what is shown after the text `mark`.
fn after(out: &str, mark: &str) -> String {
    out.split_once(mark).unwrap_or_else(|| panic!("no {mark:?} in {out}")).1.to_owned()
}

const BEFORE: &str = "without an answer until 2026-11-22T09:18:22.414Z it is not run\n";

#[test]
fn a_call_is_a_line_and_a_failed_one_another() {
    let called_line = "calls shell {\"command\":[\"rm\",\"-r\",\"build\"]}\n";
    let table = [
        (result(4, "gone", false), ""),
        (result(4, "no such\nfolder", true), "the tool failed: no such folder\n"),
        (result(4, "Not called: no.", true), "the tool was not run\n"),
    ];
    for (end, expected) in table {
        let (out, _) = play(false, &[OPEN, TURN, &called(3), &end].concat());
        assert!(out.ends_with(&format!("{called_line}{expected}")), "{out}");
    }
}

#[test]
fn a_question_shows_the_call() {
    let (out, dialogue) = play(true, &[OPEN, TURN, &called(3), &asked(4, "q1")].concat());
    let shown = after(&out, "\"build\"]}\n");
    assert_eq!(
        shown,
        format!(
            "the tool shell asks first: `shell` may destroy what it changes.\n  cd a\n  rm -r b⟨U+202E⟩uild\n  \
             {{\"command\":[\"sh\",\"-c\",\"cd a\\nrm -r b\\u202euild\"]}}\n\
             /allow [always] or /y, /reject [always|stop] [WHY] or /n;\n\
             always means in this session, for exactly this call\n{BEFORE}"
        )
    );
    assert_eq!(dialogue.asks().map(ApprovalId::as_str), Some("q1"));
    assert!(dialogue.takes_line());
}

#[test]
fn commands_answer_and_what_is_decided_is_told() {
    let script = [OPEN, TURN, &called(3), &asked(4, "q1")].concat();
    let table = [
        ("> /allow", r#"{"approvalId":"q1","argumentsHash":"HASH","review":"allow_once"}"#),
        ("> /y", r#"{"approvalId":"q1","argumentsHash":"HASH","review":"allow_once"}"#),
        ("> /n", r#"{"approvalId":"q1","argumentsHash":"HASH","review":"reject_once"}"#),
        ("> /reject always", r#"{"approvalId":"q1","argumentsHash":"HASH","review":"reject_always"}"#),
        ("> /allow always", r#"{"approvalId":"q1","argumentsHash":"HASH","review":"allow_always"}"#),
        (
            "> /reject not now",
            r#"{"approvalId":"q1","argumentsHash":"HASH","customDenyMessage":"not now","review":"reject_once"}"#,
        ),
        ("> /reject stop", r#"{"approvalId":"q1","argumentsHash":"HASH","review":"reject_and_stop"}"#),
    ];
    for (line, payload) in table {
        let (out, _) = play(true, &[&script, line].concat());
        assert_eq!(after(&out, BEFORE), format!("→ approval_response {}\n", payload.replace("HASH", HASH)), "{line}");
    }
    let by_me = [&script, "> /allow\n", &decided(5, "q1", "allowed", Some("allow_once"))].concat();
    assert!(play(true, &by_me).0.ends_with("\nallowed\n"));
    let elsewhere = [script.clone(), decided(5, "q1", "rejected", Some("reject_once"))].concat();
    assert!(play(true, &elsewhere).0.ends_with("rejected elsewhere\n"));
    let expired = [script.clone(), decided(5, "q1", "expired", None)].concat();
    assert!(play(true, &expired).0.ends_with("nobody answered in time: not run\n"));
    let next = [script, asked(5, "q2"), decided(6, "q1", "allowed", Some("allow_once"))].concat();
    let (out, dialogue) = play(true, &next);
    assert_eq!(out.matches("asks first").count(), 2, "one question at a time: {out}");
    assert_eq!(dialogue.asks().map(ApprovalId::as_str), Some("q2"));
    let (out, _) = play(true, &[OPEN, "> /allow"].concat());
    assert!(out.ends_with("no tool waits for an answer\n"), "{out}");
}

#[test]
fn nothing_else_answers() {
    let script = [OPEN, TURN, &called(3), &asked(4, "q1")].concat();
    let wrong = "/allow takes nothing, or `always`\n";
    let input = |text: &str| format!("→ user_input {{\"input\":\"{text}\"}}\n");
    for (line, expected) in [
        ("> ", String::new()),
        ("> y", input("y")),
        ("> allow", input("allow")),
        ("> /allow it", wrong.to_owned()),
        ("> /allow always not", wrong.to_owned()),
    ] {
        let (out, dialogue) = play(true, &[&script, line].concat());
        assert_eq!(after(&out, BEFORE), expected, "{line}");
        assert_eq!(dialogue.asks().map(ApprovalId::as_str), Some("q1"), "{line}");
    }
    // The line was begun before the question came, or while another one was shown.
    let (_, mut dialogue) = play(true, &script);
    for question in [None, Some("q9".parse().unwrap())] {
        let steps = dialogue.on_line("/allow", question.as_ref());
        assert_eq!(steps, [Step::Note("the question came while you typed; answer again\n".to_owned())]);
        assert_eq!(dialogue.machine.poll(), None);
    }
}

#[test]
fn a_refused_answer_leaves_the_question_open() {
    let refused = r##"
        > /allow
        < {"re":"#4","type":"error","payload":{"code":"overloaded","message":"busy","retriable":true}}
    "##;
    let (out, dialogue) = play(true, &[OPEN, TURN, &called(3), &asked(4, "q1"), refused].concat());
    assert!(out.ends_with("error: busy (overloaded)\n"), "{out}");
    assert!(dialogue.asks().is_some());
}

#[test]
fn an_answer_that_is_too_large_to_be_sent_leaves_the_question_open() {
    let (out, dialogue) =
        play(true, &[OPEN, TURN, &called(3), &asked(4, "q1"), &format!("> /reject {}", "x".repeat(200_000))].concat());
    assert!(out.contains("; send less\n"), "{}", &out[out.len() - 200..]);
    assert!(dialogue.asks().is_some());
}

#[test]
fn where_nobody_can_be_asked_a_pipe_rejects_and_a_terminal_leaves() {
    let script = [OPEN, TURN, &called(3), &asked(4, "q1")].concat();
    let (_, mut piped) = play(false, &script);
    assert_eq!(piped.on_end(), Vec::new());
    let Some(Output::Send(frame)) = piped.machine.poll() else { panic!("it answers nothing") };
    assert!(sent(&frame).contains(r#""review":"reject_once""#), "{frame}");
    let (_, mut watched) = play(true, &script);
    assert_eq!(watched.on_end().last(), Some(&Step::Quit));
    // The input had ended before the question came.
    let (_, mut early) = play(false, &[OPEN, TURN].concat());
    assert_eq!(early.on_end(), Vec::new());
    early.machine.frame(Instant::now(), called(3).trim_start_matches("< ").trim());
    early.machine.frame(Instant::now(), asked(4, "q1").trim_start_matches("< ").trim());
    let mut frames = String::new();
    while let Some(output) = early.machine.poll() {
        match output {
            Output::Tell(update) => drop(early.on_update(update)),
            Output::Send(frame) => frames += &sent(&frame),
            _ => {}
        }
    }
    assert!(frames.contains(r#""review":"reject_once""#), "{frames}");
}
