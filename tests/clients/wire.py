"""One WebSocket as a stream of JSON frames, over Python's `websockets`."""

import json
import sys
import traceback
import uuid

from websockets.sync.client import connect

# Seconds that one frame may take on a busy machine; reached only by a client that fails.
PATIENCE_SECS = 60
# Frames shown when something fails, newest last.
SHOWN_MAX = 12


class Unexpected(Exception):
    """A failed expectation, with the frames that led to it."""


def is_v1(strategy):
    """Tells whether a strategy has v1's name for it: v1 has names of its own for a few fields, too."""
    return strategy.endswith("ContextManager")


class Wire:
    """A connection that fails with the newest frames when something else comes than was expected."""

    def __init__(self, url, subprotocols=None):
        # `websockets` answers pings by itself. Its own limit for a message is that of the server.
        self.socket = connect(url, subprotocols=subprotocols, open_timeout=PATIENCE_SECS)
        self.seen = []

    def send(self, kind, payload=None, command_id=None, session_id=None):
        """Sends a command, in v2 about a session, and returns its id."""
        command_id = command_id or str(uuid.uuid4())
        frame = {"id": command_id, "type": kind}
        if session_id is not None:
            frame["sessionId"] = session_id
        if payload is not None:
            frame["payload"] = payload
        self.socket.send(json.dumps(frame))
        return command_id

    def next(self):
        """The next frame."""
        try:
            frame = json.loads(self.socket.recv(timeout=PATIENCE_SECS))
        except Exception as error:
            self.expect(False, f"a frame should come: {error!r}")
        self.seen.append(frame)
        return frame

    def next_of(self, kind):
        """The payload of the next frame, which has to be of this type."""
        frame = self.next()
        self.expect(frame["type"] == kind, f"`{kind}` should come here, `{frame['type']}` came")
        return frame["payload"]

    def ping(self):
        """Sends a ping of the WebSocket's own and waits for its answer."""
        self.expect(self.socket.ping().wait(PATIENCE_SECS), "a ping was not answered")

    def close(self):
        """Closes as it should be done; the code that the server answered with."""
        self.socket.close()
        return self.socket.close_code

    def drop(self):
        """Goes away in the middle, without a word."""
        self.socket.socket.close()

    def expect(self, condition, message):
        """Fails unless the condition holds."""
        if not condition:
            shown = [f"  {json.dumps(frame)[:600]}" for frame in self.seen[-SHOWN_MAX:]]
            raise Unexpected("\n".join([message, *shown]))

    def same(self, found, expected, what):
        """Fails unless both are equal."""
        self.expect(found == expected, f"{what} should be {expected!r}, is {found!r}")

    def check_info(self, info, strategy):
        """What every client may rely on in `context_info`."""
        percent = min(100, info["usageRatio"] * 100)
        told = info.get("usagePercent")
        right = abs(told - percent) < 0.01 if is_v1(strategy) else told is None
        self.expect(right, f"usagePercent is {told} where the ratio is {info['usageRatio']}")
        self.same(sum(info["breakdown"].values()), info["tokenCount"], "the sum of the breakdown")
        self.same(info["strategy"], strategy, "the strategy")

    def check_compacted(self, compacted, trigger, strategy):
        """What every client may rely on in `context_compacted`."""
        names = ("oldTokenCount", "newTokenCount") if is_v1(strategy) else ("tokensBefore", "tokensAfter")
        old, new = (compacted[name] for name in names)
        self.expect(0 < new < old, f"{old} tokens became {new}")
        reduction = 100 * (1 - new / old)
        told = compacted["reductionPercent"]
        self.expect(abs(told - reduction) < 0.1, f"reductionPercent is {told}, not {reduction}")
        self.same([compacted["trigger"], compacted["strategy"]], [trigger, strategy], "trigger and strategy")


def run(steps):
    """Runs the steps in order, each told by its name; ends the program at the first that fails."""
    for name, step in steps.items():
        try:
            step()
        except Unexpected as error:
            print(f"failed {name}: {error}")
            sys.exit(1)
        except Exception:
            print(f"failed {name}: {traceback.format_exc()}")
            sys.exit(1)
        print(f"ok {name}")
