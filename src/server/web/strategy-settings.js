/**
 * The settings of strategies, from the JSON Schema of `StrategySettings` in `protocol/`.
 *
 * Written by `UPDATE=1 cargo test --test it strategies`. Do not edit.
 */

/** @type {Record<import("./strategies.js").SettingName, import("./strategies.js").Setting>} */
export const SETTINGS = {
  "background": {
    "about": "The fraction of the trigger at which a compaction is prepared in the background; 1 for never.",
    "kind": "share",
    "label": "Prepare from, share of the way there",
    "max": 1.0,
    "min": 0
  },
  "keepRecentTokens": {
    "about": "The approximate number of recent tokens kept verbatim.",
    "kind": "count",
    "label": "Keep word for word, newest tokens",
    "max": 100000000,
    "min": 1
  },
  "keepToolResults": {
    "about": "The number of newest tool results that are never cleared.",
    "kind": "count",
    "label": "Never clear, newest tool results",
    "max": 100000000,
    "min": 0
  },
  "keepTurns": {
    "about": "The number of newest turns that `sliding_window` keeps; at least 1.",
    "kind": "count",
    "label": "Keep word for word, newest questions with answers",
    "max": 100000000,
    "min": 1
  },
  "minGain": {
    "about": "The fraction of the request that a compaction must save; 0 to 0.9.",
    "kind": "share",
    "label": "Save at least, share of the request",
    "max": 0.9,
    "min": 0.0
  },
  "reserveTokens": {
    "about": "Compacts when fewer than this many tokens are free for an answer; capped at half of the window. Absent: `maxOutputTokens` of `set_options`, at most three quarters of the window, or else 2 % of the window, at least 512 tokens and at most a fifth.",
    "kind": "count",
    "label": "Keep free for the answer, tokens",
    "max": 100000000,
    "min": 0
  },
  "steps": {
    "about": "The strategies of a `pipeline`, from mild to drastic.",
    "kind": "names",
    "label": "Strategies in order, gentle to drastic"
  },
  "summarise": {
    "about": "Makes `importance` summarise what it removes; otherwise it is dropped.",
    "kind": "choice",
    "label": "Summarise what is removed"
  },
  "summaryKind": {
    "about": "The kind of conversation, which determines what a summary must keep.",
    "kind": "option",
    "label": "What summaries keep first, by the kind of chat",
    "options": [
      "auto",
      "chat",
      "code",
      "debugging",
      "research"
    ]
  },
  "summaryMode": {
    "about": "How a compaction treats earlier summaries.",
    "kind": "option",
    "label": "What becomes of earlier summaries",
    "options": [
      "segments",
      "rewrite"
    ]
  },
  "target": {
    "about": "The fraction of the window that a compaction reduces the context to, or three quarters of the trigger if that is less; above 0, at most 1.",
    "kind": "share",
    "label": "Get down to, share of the window",
    "max": 1.0,
    "min": 0
  },
  "threshold": {
    "about": "Compacts when more than this fraction of the window is used; 0 to 1. The reserve for an answer can be reached earlier.",
    "kind": "share",
    "label": "Compact above, share of the window",
    "max": 1.0,
    "min": 0.0
  },
  "userShare": {
    "about": "The fraction of a compaction's target in which the user's own messages are kept word for word, newest first; 0 to 1.",
    "kind": "share",
    "label": "Keep what the user said, share of the target",
    "max": 1.0,
    "min": 0.0
  }
};
