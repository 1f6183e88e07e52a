/**
 * The one door to the generated wire types. Everything in this package imports them from here.
 */

export * from "../../typescript/index.js";
// A name of `coming.ts` replaces the generated one. Delete these lines with that file.
export type {
  DeltaKind,
  EphemeralEvent,
  EphemeralFrame,
  ItemDelta,
  ItemFinished,
  ItemKind,
  ItemStarted,
  Reply,
  ReplyFrame,
  RunningItem,
  RunningPart,
  RunningTurn,
  ServerFrame,
  SessionOpened,
} from "./coming.js";
