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

/// Returns what is shown behind the text `mark`.
fn after(out: &str, mark: &str) -> String {
    out.split_once(mark).unwrap_or_else(|| panic!("no {mark:?} in {out}")).1.to_owned()
}

const BEFORE: &str = "without an answer until 2026-11-22T09:18:22.414Z it is not run\n";

#[test]
fn a_call_is_a_line_and_its_result_another() {
    let table = [
        (result(4, "gone", false), "calls shell rm -r build\nshell rm -r build: done, 1.5 s\n"),
        (
            result(4, "no such\nfolder", true),
            "calls shell rm -r build\nshell rm -r build: failed, 1.5 s: no such folder\n",
        ),
        (result(4, "Not called: no.", true), "calls shell rm -r build\nshell rm -r build: not run\n"),
    ];
    for (end, expected) in table {
        let (out, _) = play(false, &[OPEN, TURN, &called(3), &end].concat());
        assert!(out.ends_with(expected), "{out}");
    }
}

#[test]
fn a_question_shows_the_call_and_each_key_answers_it() {
    let script = [OPEN, TURN, &called(3), &asked(4, "q1")].concat();
    let (out, _) = play(true, &script);
    let shown = after(&out, "calls shell rm -r build\n");
    assert_eq!(
        shown,
        format!(
            "the tool shell asks first: `shell` may destroy what it changes.\n  cd a\n  rm -r b⟨U+202E⟩uild\n  \
             {{\"command\":[\"sh\",\"-c\",\"cd a\\nrm -r b\\u202euild\"]}}\n\
             on an empty line: y allow once, a allow always, n reject, r reject always, s reject and stop the answer\n\
             /allow [always], /reject [always|stop] [WHY]; always means in this session, for exactly this call\n{BEFORE}"
        )
    );
    let q1: ApprovalId = "q1".parse().unwrap();
    for (key, review) in [
        ('y', "allow_once"),
        ('a', "allow_always"),
        ('n', "reject_once"),
        ('r', "reject_always"),
        ('s', "reject_and_stop"),
    ] {
        let (_, mut dialogue) = play(true, &script);
        assert_eq!(dialogue.asks(), Some(&q1));
        let other: ApprovalId = "q9".parse().unwrap();
        let refused: String = dialogue.on_key(key, &other).iter().map(shown_step).collect();
        assert_eq!(refused, "that question is over\n", "{key} belongs to another question");
        assert_eq!(dialogue.on_key(key, &q1), Vec::new());
        let Some(Output::Send(frame)) = dialogue.machine.poll() else { panic!("{key} sends nothing") };
        let expected =
            format!("→ approval_response {}\n", json!({ "approvalId": "q1", "review": review, "argumentsHash": HASH }));
        assert_eq!(sent(&frame), expected);
        assert_eq!(dialogue.asks(), None, "it is answered once");
    }
}

fn shown_step(step: &Step) -> String {
    shown(step)
}

#[test]
fn commands_answer_and_what_is_decided_is_told() {
    let script = [OPEN, TURN, &called(3), &asked(4, "q1")].concat();
    let table = [
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
    let next = [script.clone(), asked(5, "q2"), decided(6, "q1", "allowed", Some("allow_once"))].concat();
    let (out, dialogue) = play(true, &next);
    assert_eq!(out.matches("asks first").count(), 2, "one question at a time: {out}");
    assert_eq!(dialogue.asks().map(ApprovalId::as_str), Some("q2"));
    let (out, _) = play(true, &[OPEN, "> /allow"].concat());
    assert!(out.ends_with("no tool waits for an answer\n"), "{out}");
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

#[test]
fn tools_are_listed_and_switched() {
    let listed = r##"
        > /tools
        < {"re":"#3","type":"tools","payload":{"items":[{"name":"shell","description":"Runs a\ncommand.","place":"server","tokens":1182,"annotations":{"destructive":true}},{"name":"files__read","description":"Reads a file.","place":"server","tokens":74,"off":true,"annotations":{"readOnly":true}}],"tokens":1182}}
    "##;
    let expected = "→ list_tools {}\n  on  shell                      1,182 tokens, may destroy  Runs a command.\n  \
                    off files__read                   74 tokens, only reads  Reads a file.\n\
                    1 of 2 are on and take about 1,182 tokens of every request; /tools off NAME and /tools on NAME switch\n";
    check(&[listed], expected, true);
    let servers = r##"
        > /tools
        < {"re":"#3","type":"tools","payload":{"items":[],"tokens":0,"servers":[{"name":"files","prefix":"files__","state":"ready","restarts":0},{"name":"web","prefix":"web__","state":"failing","failure":"unreachable","restarts":2}]}}
    "##;
    let expected = "→ list_tools {}\n  MCP files                    running\n  MCP web                      not running: it \
                    cannot be reached\nthis session has no tools\n";
    check(&[servers], expected, true);
    let settings = r##"
        < {"sessionId":"ses","seq":1,"type":"session_updated","payload":{"settings":{"toolsOff":["a","b"]}}}
        < {"sessionId":"ses","seq":2,"type":"session_updated","payload":{"standingApprovals":[{"approvalId":"q1","name":"shell","argumentsHash":"h","display":"{\"command\":[\"ls\"]}","option":"allow_always","since":"2026-11-21T09:18:25.102Z"}]}}
    "##;
    let table = [
        ("> /tools off c", "→ set_tools {\"off\":[\"a\",\"b\",\"c\"]}\n"),
        ("> /tools on a", "→ set_tools {\"off\":[\"b\"]}\n"),
        ("> /tools ask 1", "→ withdraw_approval {\"approvalId\":\"q1\"}\n"),
        ("> /tools ask 2", "that is no number of a lasting answer in /tools\n"),
        ("> /tools", "   1  allowed always: shell ls\n/tools ask N asks about such a call again\n→ list_tools {}\n"),
    ];
    for (line, expected) in table {
        let (out, _) = play(true, &[OPEN, settings, line].concat());
        assert!(out.ends_with(expected), "{line}: {out}");
    }
}
