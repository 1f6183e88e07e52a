/**
 * The strategies that the server offers, and the settings that hold if a session sets none.
 *
 * Written by `UPDATE=1 cargo test --lib server::offered`. Do not edit. A server serves its own in its place.
 */

/** @type {import("./strategies.js").Strategy[]} */
export const STRATEGIES = [
  {
    "name": "threshold",
    "about": "Summarises the older part when the window is nearly full.",
    "automatic": true,
    "settings": [
      "threshold",
      "target",
      "background",
      "keepRecentTokens",
      "userShare",
      "summaryMode",
      "summaryKind",
      "keepToolResults",
      "minGain",
      "reserveTokens"
    ]
  },
  {
    "name": "manual",
    "about": "Off: never compacts by itself, not even when the window is full.",
    "automatic": false,
    "settings": [
      "keepRecentTokens",
      "target",
      "userShare",
      "summaryMode",
      "summaryKind",
      "minGain",
      "reserveTokens"
    ]
  },
  {
    "name": "sliding_window",
    "about": "Keeps the newest questions and answers word for word, and folds older ones into a summary.",
    "automatic": true,
    "settings": [
      "keepTurns",
      "threshold",
      "background",
      "target",
      "userShare",
      "summaryMode",
      "summaryKind",
      "keepRecentTokens",
      "minGain",
      "reserveTokens"
    ]
  },
  {
    "name": "tool_results",
    "about": "Clears old tool results as soon as that saves enough, then works like threshold.",
    "automatic": true,
    "settings": [
      "threshold",
      "keepToolResults",
      "minGain",
      "target",
      "background",
      "keepRecentTokens",
      "userShare",
      "summaryMode",
      "summaryKind",
      "reserveTokens"
    ]
  },
  {
    "name": "truncate",
    "about": "Drops the oldest questions and answers, without asking the model.",
    "automatic": true,
    "settings": [
      "threshold",
      "target",
      "background",
      "minGain",
      "reserveTokens"
    ]
  },
  {
    "name": "importance",
    "about": "Removes what matters least first, wherever it is.",
    "automatic": true,
    "settings": [
      "threshold",
      "target",
      "summarise",
      "keepRecentTokens",
      "background",
      "userShare",
      "summaryMode",
      "summaryKind",
      "minGain",
      "reserveTokens"
    ]
  },
  {
    "name": "pipeline",
    "about": "Uses several strategies in order, gentle to drastic.",
    "automatic": true,
    "settings": [
      "steps",
      "threshold",
      "target",
      "background",
      "keepTurns",
      "keepToolResults",
      "keepRecentTokens",
      "summarise",
      "userShare",
      "summaryMode",
      "summaryKind",
      "minGain",
      "reserveTokens"
    ]
  }
];

/** @type {import("./strategies.js").StrategySettings} */
export const DEFAULTS = {
  "threshold": 0.8,
  "keepRecentTokens": 20000,
  "target": 0.6,
  "background": 0.85,
  "minGain": 0.05,
  "keepTurns": 8,
  "keepToolResults": 4,
  "summarise": true,
  "steps": [
    "tool_results",
    "threshold",
    "truncate"
  ],
  "summaryKind": "auto",
  "userShare": 1.0,
  "summaryMode": "segments"
};
