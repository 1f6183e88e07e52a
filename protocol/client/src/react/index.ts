/**
 * React: sessions as state, by `useSyncExternalStore`. Works with React 18 and 19, also in strict mode.
 *
 * A session is open while a component shows it, and for a moment longer. Unmounting never cancels a turn.
 *
 * @module
 */

import { useCallback, useMemo, useSyncExternalStore } from "react";
import type { Client } from "../client.js";
import type { ConnectionStatus } from "../connection/connection.js";
import type { SessionSnapshot } from "../fold/snapshot.js";
import type { Session, SessionOptions, SessionView } from "../session/session.js";
import type { SessionsView } from "../sessions.js";
import type { ContextInfo, SessionId } from "../wire.js";

/** A session as shown by a component. */
export interface ShownSession extends SessionView {
  /** The session object, with a method for every command. */
  readonly session: Session;
}

/**
 * Opens a session while the component is mounted, and returns its state. Re-renders after every event, including those
 * of an answer in progress; `useSessionValue` renders less often.
 */
export function useSession(client: Client, id: SessionId, options?: SessionOptions): ShownSession {
  const session = client.session(id, options);
  const view = useSyncExternalStore(
    useHeld(session),
    () => session.view,
    () => session.view,
  );
  return useMemo(() => ({ session, ...view }), [session, view]);
}

/**
 * Returns one value of a session and re-renders when it changes. `select` must return a part of the snapshot, not a new
 * object.
 */
export function useSessionValue<T>(client: Client, id: SessionId, select: (snapshot: SessionSnapshot) => T): T | null {
  const session = client.session(id);
  const read = (): T | null => (session.snapshot ? select(session.snapshot) : null);
  return useSyncExternalStore(useHeld(session), read, read);
}

/** Returns how full a session's context window is, or `null` while that is unknown. */
export function useContextInfo(client: Client, id: SessionId): ContextInfo | null {
  return useSessionValue(client, id, contextInfoOf);
}

/**
 * Returns the list of sessions, newest first, kept up to date by the server. `client.sessions.loadMore` fetches more.
 */
export function useSessions(client: Client): SessionsView {
  const { sessions } = client;
  return useSyncExternalStore(
    sessions.subscribe,
    () => sessions.view,
    () => sessions.view,
  );
}

/** Returns the connection status. */
export function useConnection(client: Client): ConnectionStatus {
  return useSyncExternalStore(
    client.subscribe,
    () => client.status,
    () => client.status,
  );
}

/** Returns a function that subscribes to a session and keeps it open until it unsubscribes. */
function useHeld(session: Session): (listener: () => void) => () => void {
  return useCallback(
    (listener: () => void) => {
      const release = session.hold();
      const end = session.subscribe(listener);
      return () => {
        end();
        release();
      };
    },
    [session],
  );
}

function contextInfoOf({ contextInfo }: SessionSnapshot): ContextInfo {
  return contextInfo;
}
