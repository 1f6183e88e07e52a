//! The tree: its lines, moves in it, and questions taken back.

use super::check;

/// A tree of a question, its answer, and another answer below the same question, on which the session stands.
const TREE: &str = r##"
    > /tree
    < {"re":"#3","type":"tree","payload":{"nodes":[{"entryId":"u1","parentId":null,"type":"message:user","preview":"hello","timestamp":"2026-11-21T09:00:00.000Z","childCount":2},{"entryId":"a1","parentId":"u1","type":"message:assistant","preview":"Good morning.","label":"polite","timestamp":"2026-11-21T09:00:01.000Z","childCount":0},{"entryId":"a2","parentId":"u1","type":"message:assistant","preview":"Hi.","timestamp":"2026-11-21T09:00:02.000Z","childCount":0}],"leafId":"a2","asOfSeq":0,"more":false}}
"##;

const TREE_SHOWN: &str = "→ get_tree {}\n\
    \x20  1  * > hello\n\
    \x20  2  \\ * Good morning. [polite]\n\
    \x20  3  * Hi.  <- here\n\
    /go N goes on from a line, /fork N makes a session of it, /label N NAME names it\n";

#[test]
fn the_lines_of_the_tree_are_gone_to_forked_and_named_by_their_numbers() {
    let moved = r##"
        > /go 2
        < {"re":"#4","type":"navigated","payload":{"leafId":"a1","asOfSeq":0}}
        < {"sessionId":"ses","seq":1,"type":"session_updated","payload":{"leafId":"a1","generation":2,"commandId":"#4"}}
        > /label 3 short
        < {"re":"#5","type":"ok","payload":{"entryId":"l1","asOfSeq":1}}
        > /go 4
        > /fork 2
        < {"re":"#6","type":"forked","payload":{"sessionId":"copy"}}
    "##;
    let after = "→ navigate {\"entryId\":\"a1\",\"position\":\"at\"}\n\
        the session goes on from there\n\
        → set_label {\"entryId\":\"a2\",\"label\":\"short\"}\n\
        labelled\n\
        that is no number of the last /tree, and no entry's id\n\
        → fork_session {\"entryId\":\"a1\",\"position\":\"at\"}\n\
        → close_session {}\n\
        → open_session {\"entries\":20,\"sessionId\":\"copy\"}\n";
    check(&[TREE, moved], &format!("{TREE_SHOWN}{after}"), false);
}

#[test]
fn leaving_with_a_summary_shows_that_it_is_made_and_can_be_stopped() {
    let leave = r##"
        > /go 2 summary the names
        < {"sessionId":"ses","type":"compaction_progress","payload":{"jobId":"j1","phase":"summarising_branch","done":0,"total":1}}
        ^C
        < {"sessionId":"ses","seq":1,"type":"compaction_failed","payload":{"jobId":"j1","commandId":"#4","error":{"code":"navigation_cancelled","message":"stopped","retriable":true}}}
        < {"re":"#4","type":"error","payload":{"code":"navigation_cancelled","message":"stopped","retriable":false}}
        < {"re":"#5","type":"ok","payload":{"asOfSeq":0}}
        ^C
    "##;
    let after = "→ navigate {\"entryId\":\"a1\",\"instructions\":\"the names\",\"position\":\"at\",\"summarize\":true}\n\
        summarising the branch that is left\n\
        → cancel_compaction {\"jobId\":\"j1\"}\n\
        error: stopped (navigation_cancelled)\n\
        [Quit]\n";
    check(&[TREE, leave], &format!("{TREE_SHOWN}{after}"), true);
}

#[test]
fn a_question_is_taken_back_from_where_it_stands_on_the_path() {
    let back = r##"
        > /back 2
        < {"re":"#3","type":"entries","payload":{"items":[{"entryId":"u1","parentId":null,"timestamp":"2026-11-21T09:00:00.000Z","type":"message","role":"user","content":[{"type":"text","text":"one"}]},{"entryId":"a1","parentId":"u1","timestamp":"2026-11-21T09:00:00.000Z","type":"message","role":"assistant","content":[{"type":"text","text":"1"}]},{"entryId":"u2","parentId":"a1","timestamp":"2026-11-21T09:00:00.000Z","type":"message","role":"user","content":[{"type":"text","text":"two"}]},{"entryId":"u3","parentId":"u2","timestamp":"2026-11-21T09:00:00.000Z","type":"message","role":"user","content":[{"type":"text","text":"three"}]}],"leafId":"u3","asOfSeq":0,"more":false}}
        < {"re":"#4","type":"navigated","payload":{"leafId":"a1","input":[{"type":"text","text":"two"}],"asOfSeq":0}}
        > /back 9
        < {"re":"#5","type":"entries","payload":{"items":[],"leafId":null,"asOfSeq":0,"more":false}}
    "##;
    check(
        &[back],
        "→ get_entries {\"limit\":500,\"path\":true}\n\
         → navigate {\"entryId\":\"u2\",\"position\":\"before\"}\n\
         taken back; it stays on its branch, and what you say now begins another:\n\
         two\n\
         → get_entries {\"limit\":500,\"path\":true}\n\
         there is no question to take back\n",
        true,
    );
}

#[test]
fn a_move_of_another_client_is_told() {
    let moved = r##"< {"sessionId":"ses","seq":1,"type":"session_updated","payload":{"leafId":null,"generation":2}}"##;
    check(&[moved], "the session goes on from elsewhere now; /tree shows where\n", true);
}
