//! Where reseed deliberately differs from pi, and why. A test that names one of these has checked that the better
//! result is there.

/// A reason to deviate.
pub(crate) struct Deviation {
    /// Its name.
    pub(crate) name: &'static str,
    /// The reason, and what happens instead.
    pub(crate) reason: &'static str,
}

pub(crate) const UNKNOWN_LEAF: &str = "unknown leaf";
pub(crate) const BROKEN_CHAIN: &str = "broken fork chain";
pub(crate) const PREVIOUS_SUMMARY: &str = "previous summary dropped";
pub(crate) const NOTHING_TO_COMPACT: &str = "compacting nothing";
pub(crate) const NO_GAIN: &str = "compacting without gain";
pub(crate) const FAILING_SUMMARISER: &str = "summariser that fails";
pub(crate) const LATER_OVERFLOW_TEXT: &str = "later overflow text";
pub(crate) const BEFORE_THE_REQUEST: &str = "threshold looked at late";
pub(crate) const ORDER_OF_CHILDREN: &str = "children by their clocks";
pub(crate) const ORPHAN_RESULT: &str = "result without a call";
pub(crate) const MERGED_ANSWERS: &str = "hooks' answers merged";
pub(crate) const UNKNOWN_OP: &str = "unknown patch op";
pub(crate) const SCOPE: &str = "scope of a patch op";
pub(crate) const UNKNOWN_TOOL: &str = "definition of nobody's tool";
pub(crate) const MISSING_PARENT: &str = "parent that is missing";
pub(crate) const LABELLED_LABEL: &str = "label of a label";
pub(crate) const NOTED_FILES: &str = "files that summaries noted";
pub(crate) const FAILED_CALLS: &str = "calls of failed answers";
pub(crate) const OPTION_RANGE: &str = "option out of range";

/// All deviations.
pub(crate) const DEVIATIONS: &[Deviation] = &[
    Deviation {
        name: MERGED_ANSWERS,
        reason: "of several extensions pi takes the last answer whole, so an empty one wipes a summary that was given; \
                 here they are merged field by field, and an empty one changes nothing",
    },
    Deviation {
        name: UNKNOWN_LEAF,
        reason: "pi silently takes the last entry of the file; here an entry that is not there is told as such",
    },
    Deviation {
        name: BROKEN_CHAIN,
        reason: "pi's fork drops labels and leaves their children without a parent, so the context before them is \
                 lost; here the children are relinked and the fork's context is whole",
    },
    Deviation {
        name: PREVIOUS_SUMMARY,
        reason: "where a cut parts the first turn after a compaction pi forgets the summary that was there; here every \
                 compaction is given the previous summary to merge",
    },
    Deviation {
        name: NOTHING_TO_COMPACT,
        reason: "pi asks the model to summarise nothing, or only what no model is given (commands that were excluded, \
                 failed answers), and stores the answer; here that is refused and nothing is written",
    },
    Deviation {
        name: NO_GAIN,
        reason: "pi stores a summary that is longer than what it stands for; here an extract takes its place, or, if \
                 that saves nothing either, nothing is written (these sessions are small, and our summaries have six \
                 sections)",
    },
    Deviation {
        name: FAILING_SUMMARISER,
        reason: "pi's compaction fails with its summariser; here the next step is taken, an extract by rule, which \
                 says what had failed and can be taken back",
    },
    Deviation {
        name: LATER_OVERFLOW_TEXT,
        reason: "a refusal that pi recognises only in later versions is recognised",
    },
    Deviation {
        name: BEFORE_THE_REQUEST,
        reason: "pi looks at the window when a turn is over, so that a turn itself can overflow, and compacts again \
                 after every turn while what it keeps is too large; here it is looked at before every request, once a \
                 turn",
    },
    Deviation {
        name: ORDER_OF_CHILDREN,
        reason: "pi sorts an entry's children by their times, so that a clock that steps back reorders them; here they \
                 stand in the order in which they were appended",
    },
    Deviation {
        name: UNKNOWN_OP,
        reason: "the proposal passes over an op that it does not know, so that a misspelt one does nothing; here the \
                 patch is refused, with the op's place and name",
    },
    Deviation {
        name: SCOPE,
        reason: "the proposal has ops say their scope and does not check it; here a scope that is not the op's own is \
                 refused",
    },
    Deviation {
        name: UNKNOWN_TOOL,
        reason: "the proposal sends the definition of a tool that nobody has, and fails when the model calls it; here \
                 the patch is refused",
    },
    Deviation {
        name: MISSING_PARENT,
        reason: "pi fails to go back before what was said under a parent that is missing; here that entry is a root, \
                 so the session goes back before it and its text is given for editing",
    },
    Deviation {
        name: LABELLED_LABEL,
        reason: "pi's fork drops labels of entries that are labels themselves; here a fork has every name that its \
                 source has",
    },
    Deviation {
        name: NOTED_FILES,
        reason: "pi forgets the files that an older compaction or a branch summary noted; here every list is carried \
                 along",
    },
    Deviation {
        name: FAILED_CALLS,
        reason: "pi lists the files of calls in answers that failed, which were never made; here such calls count for \
                 nothing",
    },
    Deviation {
        name: OPTION_RANGE,
        reason: "the proposal takes an output limit of nothing, which providers refuse; here the patch is",
    },
    Deviation {
        name: ORPHAN_RESULT,
        reason: "pi sends a tool's result without its call, which providers refuse; here it is left out",
    },
];
