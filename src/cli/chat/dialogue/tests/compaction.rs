//! Compactions: made and undone.

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
fn a_compaction_is_awaited_through_a_lost_connection_unless_a_restart_ended_it() {
    let running = r##","compaction":{"jobId":"j1","trigger":"manual","background":false,"phase":"summarising"}"##;
    for (compaction, idle) in [(running, false), ("", true)] {
        let again = format!(
            r##"
            > /compact
            lost
            again
            < {{"re":"#5","type":"session_opened","payload":{{"sessionId":"ses","epoch":"ep","asOfSeq":0,"resumed":"replay","queue":[]{compaction}}}}}
            < {{"re":"#3","type":"ok","payload":{{"jobId":"j1","asOfSeq":0,"duplicate":true}}}}
            "##
        );
        let (out, dialogue) = play(true, &[OPEN, &again].concat());
        assert_eq!(out.matches("→ start_compaction").count(), 2, "{out}");
        assert_eq!(dialogue.machine.unanswered(), 0, "{out}");
        assert_eq!(dialogue.is_idle(), idle, "{out}");
    }
}

#[test]
fn what_is_told_of_an_answer_after_its_end_changes_nothing() {
    let late = r##"
        < {"sessionId":"ses","seq":5,"type":"compaction_failed","payload":{"jobId":"j1","error":{"code":"compaction_cancelled","message":"as it was","retriable":true}}}
        < {"sessionId":"ses","type":"item_started","payload":{"itemId":"a1","turnId":"t1","kind":"message"}}
        < {"sessionId":"ses","type":"item_delta","payload":{"itemId":"a1","part":0,"offset":0,"text":"Good morning."}}
    "##;
    let shown = "→ user_input {\"input\":\"hello\"}\nGood morning.\nnot compacted: as it was (compaction_cancelled)\n";
    check(&[TURN, ANSWER, late], shown, true);
}

#[test]
fn a_compaction_is_taken_back_and_that_is_awaited() {
    let undo = r##"
        > /undo
        < {"re":"#3","type":"ok","payload":{"asOfSeq":0}}
    "##;
    check(&[undo], "→ undo_compaction {}\n", false);
}
