/**
 * The one door to the generated wire types. Everything in this package imports them from here.
 */

export * from "../../typescript/index.js";
// A name of `coming.ts` replaces the generated one. Delete these lines with that file.
export type {
  Addresses,
  Command,
  CommandFrame,
  CommandOf,
  Connection,
  Done,
  DurableFrame,
  Entries,
  EphemeralEvent,
  EphemeralFrame,
  Event,
  FailedCompaction,
  HookCallAt,
  Host,
  HostChanged,
  ItemDelta,
  ItemFinished,
  ItemStarted,
  Navigate,
  Navigated,
  OpenSession,
  Place,
  PresenceChanged,
  Reply,
  ReplyFrame,
  ReplyTypes,
  RunTool,
  ServerFrame,
  SessionOpened,
  SessionRole,
  SessionUpdated,
  Tree,
  UnansweredTurn,
  UserInput,
  Welcome,
} from "./coming.js";
