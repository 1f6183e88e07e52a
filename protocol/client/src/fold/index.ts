/** The fold of a session's events as pure functions, usable without a connection. */

export { KnownEntries, Path, placeOf } from "./entries.js";
export { fold, type EventFrame } from "./fold.js";
export { fromOpened, reopened, resumePoint, withEntries } from "./open.js";
export { partText } from "./items.js";
export {
  type Call,
  type CompactionJob,
  type Item,
  type SessionSnapshot,
  SUMMARISING_BRANCH,
  type Turn,
} from "./snapshot.js";
