//! Compactions: made, held, previewed, applied and undone.

use super::{ANSWER, OPEN, TURN, check, play};

#[test]
fn a_compaction_is_one_line_and_awaited() {
    let asked = r##"
        > /compact
        < {"re":"#3","type":"ok","payload":{"jobId":"j1","asOfSeq":0}}
        < {"sessionId":"ses","type":"compaction_started","payload":{"jobId":"j1","trigger":"manual","background":false}}
    "##;
    let failed = r##"< {"sessionId":"ses","seq":1,"type":"compaction_failed","payload":{"jobId":"j1","error":{"code":"compaction_cancelled","message":"as it was","retriable":true}}}"##;
    check(&[asked], "→ start_compaction {}\ncompacting the context\n", false);
    check(
        &[asked, failed],
        "→ start_compaction {}\ncompacting the context\nnot compacted: as it was (compaction_cancelled)\n",
        true,
    );
}

#[test]
fn what_is_told_of_a_compaction_or_an_answer_after_its_end_changes_nothing() {
    let late = r##"
        < {"sessionId":"ses","seq":5,"type":"compaction_failed","payload":{"jobId":"j1","error":{"code":"compaction_cancelled","message":"as it was","retriable":true}}}
        < {"sessionId":"ses","type":"compaction_started","payload":{"jobId":"j1","trigger":"manual","background":false}}
        < {"sessionId":"ses","type":"item_started","payload":{"itemId":"a1","turnId":"t1","kind":"message"}}
        < {"sessionId":"ses","type":"item_delta","payload":{"itemId":"a1","part":0,"offset":0,"text":"Good morning."}}
    "##;
    let shown = "→ user_input {\"input\":\"hello\"}\nGood morning.\nnot compacted: as it was (compaction_cancelled)\n";
    check(&[TURN, ANSWER, late], shown, true);
}

#[test]
fn a_compaction_that_is_held_is_shown_once_as_it_arrives_or_where_a_session_is_opened() {
    let held = |job: &str| {
        format!(
            r##"{{"jobId":"{job}","trigger":"threshold","rung":"extract","tokensBefore":5460,"tokensAfter":2022,"compactAtTokens":6400,"durationMs":640}}"##
        )
    };
    let opened = |id: u32, resumed: &str, job: &str| {
        let held = held(job);
        format!(
            "\n< {{\"re\":\"#{id}\",\"type\":\"session_opened\",\"payload\":{{\"sessionId\":\"ses\",\"epoch\":\"ep\",\"asOfSeq\":0,\"model\":\"offline\",\"strategy\":\"threshold\"{resumed},\"entries\":[],\"queue\":[],\"held\":{held}}}}}\n"
        )
    };
    let prepared =
        format!("\n< {{\"sessionId\":\"ses\",\"type\":\"compaction_prepared\",\"payload\":{}}}\n", held("j1"));
    let told = "a compaction is prepared; the context is compacted before the first request above 6,400 tokens\n";
    // Live, and after a connection that was lost: the same one is told once, another one anew.
    for (after, times) in [("j1", 1), ("j2", 2)] {
        let again = ["\nlost\nagain\n", &opened(4, r#","resumed":"snapshot""#, after)].concat();
        let (out, _) = play(true, &[OPEN, &prepared, &again].concat());
        assert_eq!(out.matches(told).count(), times, "{after}: {out}");
    }
    // Of a session that is opened.
    let line = OPEN.lines().find(|line| line.contains("session_opened")).unwrap();
    let (out, _) = play(true, &OPEN.replace(line, &opened(2, "", "j1")));
    assert_eq!(out.matches(told).count(), 1, "{out}");
}

#[test]
fn a_compaction_is_looked_at_applied_and_taken_back() {
    let script = r##"
        > /apply
        > /preview the decks
        < {"re":"#3","type":"compaction_preview","payload":{"previewId":"j1","expiresAt":"2026-11-21T09:10:00.000Z","summary":"Reach the ferry.","rung":"extract","failedRungs":[{"rung":"model_summary","reason":"empty"}],"keptEntryIds":[],"dropped":{"count":4,"tokens":1200},"kept":{"count":2,"tokens":300},"tokensBefore":1600,"tokensAfter":500,"retained":{"checked":5,"restored":2}}}
        > /apply
        < {"re":"#4","type":"ok","payload":{"jobId":"j1","asOfSeq":0}}
    "##;
    let shown = "there is nothing to apply; /preview shows a compaction first\n\
        making the summary; nothing changes yet\n\
        → preview_compaction {\"instructions\":\"the decks\"}\n\
        Reach the ferry.\n\
        drops 4 messages of 1,200 tokens, keeps 2 messages of 300 tokens; 1,600 tokens now, 500 then; extracted by rule; \
        not summarised by the model (empty)\n\
        nothing is changed; /apply does it\n\
        → start_compaction {\"previewId\":\"j1\"}\n";
    check(&[script], shown, false);

    let undo = r##"
        > /undo
        < {"re":"#3","type":"ok","payload":{"asOfSeq":0}}
    "##;
    check(&[undo], "→ undo_compaction {}\n", false);
}
