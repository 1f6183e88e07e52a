"""
A v2 client: `python v2.py ws://HOST:PORT`. Streams a turn, repeats a command, resumes after a lost connection, hosts a
tool, talks past the window until the server compacts by itself, is told a fact from before that, and goes to the root.
"""

import json
import sys
import uuid

from wire import Wire, run

STRATEGY = "threshold"
# Inputs said to fill the window of 8,000 tokens; at 700 each it is full after ten.
INPUTS_MAX = 30
# Compactions that the fact has to outlive.
COMPACTIONS = 2


class Session:
    """A client's view of its session: a fold over events."""

    def __init__(self, address):
        self.address = address
        self.client_id = str(uuid.uuid4())
        self.place = None
        self.shown = {}
        self.entries = []
        self.durable = []
        self.events = []
        self.wire = None

    def connect(self):
        """Connects, says hello, and opens the session where this client was, if it was anywhere."""
        self.wire = Wire(f"{self.address}/ws", ["reseed.v2"])
        self.wire.same(self.wire.socket.subprotocol, "reseed.v2", "the subprotocol")
        welcome = self.ask("welcome", "hello", {"protocolVersion": 2, "clientId": self.client_id})
        self.wire.same(welcome["protocolVersion"], 2, "the version")
        if self.place is None:
            opened = self.ask("session_opened", "open_session", {})
            self.place = {"sessionId": opened["sessionId"], "epoch": opened["epoch"], "seq": opened["asOfSeq"]}
        else:
            resume = {"epoch": self.place["epoch"], "seq": self.place["seq"], "items": self.items()}
            opened = self.ask("session_opened", "open_session", {"resume": resume})
            self.wire.same(opened["resumed"], "replay", "how it was resumed")
        self.wire.check_info(opened["contextInfo"], STRATEGY)
        return opened

    def items(self):
        """How much of the running answers was seen: those without an entry."""
        stored = {entry["entryId"] for entry in self.entries}
        running = {item: parts for item, parts in self.shown.items() if item not in stored}
        places = [(item, part, text) for item, parts in running.items() for part, text in (parts or {0: ""}).items()]
        return [{"itemId": item, "part": part, "offset": utf16_len(text)} for item, part, text in places]

    def ask(self, expected, kind, payload, command_id=None):
        """Sends a command about the session, and returns its reply's payload; events on the way are folded."""
        session_id = self.place["sessionId"] if self.place and kind != "hello" else None
        command_id = self.wire.send(kind, payload, command_id, session_id)
        while (frame := self.wire.next()).get("re") != command_id:
            self.fold(frame)
        self.wire.same(frame["type"], expected, f"the reply to {kind}")
        if session_id is not None:
            self.wire.same(frame.get("sessionId"), session_id, f"the session of the reply to {kind}")
        self.wire.expect("seq" not in frame, "a reply is not an event")
        return frame["payload"]

    def until(self, kind):
        """Folds events until one of this type, whose payload it returns."""
        while True:
            frame = self.wire.next()
            self.fold(frame)
            if frame["type"] == kind:
                return frame["payload"]

    def fold(self, frame):
        """Takes one event in: seq without a gap, pieces without a hole, an entry that begins with what was streamed."""
        kind, payload = frame["type"], frame["payload"]
        self.wire.expect("re" not in frame and "id" not in frame, "an event answers nothing")
        self.wire.same(frame["sessionId"], self.place["sessionId"], "the session of an event")
        self.events.append(kind)
        if "seq" in frame:
            self.wire.same(frame["seq"], self.place["seq"] + 1, "seq")
            self.place["seq"] = frame["seq"]
            self.durable.append(frame)
        if kind == "item_started":
            parts = self.shown.setdefault(payload["itemId"], {})
            if payload["kind"] == "tool_call":
                parts.setdefault(payload["part"], "")
        elif kind == "item_delta":
            parts, part = self.shown[payload["itemId"]], payload["part"]
            text = parts.get(part, "")
            self.wire.same(payload["offset"], utf16_len(text), "the offset of a piece")
            parts[part] = text + payload["text"]
        elif kind == "entry_appended":
            entry = payload["entry"]
            self.entries.append(entry)
            if entry.get("role") == "assistant":
                for part, streamed in self.shown.get(entry["entryId"], {}).items():
                    content = entry["content"][part]
                    whole = content.get("text", content.get("arguments", ""))
                    self.wire.expect(whole.startswith(streamed), "what was streamed is the beginning of the entry")

    def turn(self, text):
        """A whole turn; the answer's text and the meter."""
        self.ask("accepted", "user_input", {"input": text})
        finished = self.until("turn_finished")
        self.wire.same(finished["status"], "completed", "how the turn ended")
        self.wire.check_info(finished["contextInfo"], STRATEGY)
        return text_of(self.entries[-1]), finished["contextInfo"]


def utf16_len(text):
    """The length of a text as positions on the wire are counted."""
    return len(text.encode("utf-16-le")) // 2


def text_of(entry):
    """The text of a message."""
    return "".join(part["text"] for part in entry["content"] if part["type"] == "text")


session = Session(sys.argv[1])


def first_turn():
    session.connect()
    text = "naïve ferries 🚢 sail, 你好 👩‍🚀!"
    answer, _ = session.turn(f"The harbour code is K7-tango-42. Repeat after me: {text}")
    session.wire.same(answer, text, "the answer")
    session.wire.expect(session.shown[session.entries[-1]["entryId"]], "something was streamed")


def repeated():
    command_id = str(uuid.uuid4())
    first = session.ask("accepted", "user_input", {"input": "Count to 3."}, command_id)
    session.until("turn_finished")
    again = session.ask("accepted", "user_input", {"input": "Count to 3."}, command_id)
    session.wire.same(again, {**first, "duplicate": True}, "the answer to the same command")
    conflict = session.ask("error", "user_input", {"input": "Count to 4."}, command_id)
    session.wire.same(conflict["code"], "idempotency_conflict", "the code")
    session.wire.same(session.ask("pong", "ping", {"seq": session.place["seq"]})["inSync"], True, "inSync")


def resumed():
    session.ask("accepted", "user_input", {"input": "Write 400 words."})
    for _ in range(2):
        session.until("item_delta")
    session.wire.drop()
    session.connect()
    session.wire.same(session.until("turn_finished")["status"], "completed", "how the turn ended")
    session.wire.same(len(text_of(session.entries[-1]).split()), 400, "the words of the answer")
    session.wire.same(session.wire.close(), 1000, "the code of closing")
    live, session.durable = session.durable, []
    session.place["seq"] = live[0]["seq"] - 1
    session.connect()
    while len(session.durable) < len(live):
        session.fold(session.wire.next())
    session.wire.expect(session.durable == live, f"the replay differs: {json.dumps(session.durable)[:2000]}")


def hosted():
    tool = {"name": "look", "description": "Looks at the sea.", "parameters": {"type": "object"}}
    offered = session.ask("ok", "register_tools", {"tools": [tool]})
    session.wire.expect("standby" not in offered, f"the only one that offers tools is told {offered}")
    # An optional field that is null is one that is not there.
    session.ask("accepted", "user_input", {"input": "Please use look.", "whenBusy": None, "parentId": None})
    call = session.until("tool_call")
    session.wire.same(session.until("run_tool"), {"toolCallId": call["toolCallId"]}, "what the host is told to run")
    session.ask("ok", "tool_result", {"toolCallId": call["toolCallId"], "output": "The sea is calm.", "isError": None})
    session.wire.same(session.until("turn_finished")["status"], "completed", "how the turn ended")
    session.wire.expect("calm" in text_of(session.entries[-1]), f"the answer is {session.entries[-1]}")
    session.ask("ok", "register_tools", {"tools": []})
    session.wire.expect("host_changed" in session.events, "who offers nothing hosts nothing")


def past_the_window():
    compactions = 0
    for number in range(1, INPUTS_MAX + 1):
        before = len(session.durable)
        session.turn(f"Entry {number} of the log: " + "calm sea light wind " * 175)
        told = [frame["payload"] for frame in session.durable[before:] if frame["type"] == "context_compacted"]
        for compacted in told:
            session.wire.check_compacted(compacted, "threshold", STRATEGY)
        session.wire.expect(len(told) <= 1, "one crossing is compacted once")
        compactions += len(told)
        if compactions == COMPACTIONS:
            break
    session.wire.same(compactions, COMPACTIONS, f"the compactions within {INPUTS_MAX} inputs")
    answer, info = session.turn("What is the harbour code?")
    session.wire.expect("K7-tango-42" in answer, f"the answer after {COMPACTIONS} compactions is {answer}")
    # The question itself may have been the next to cross it.
    told = sum(frame["type"] == "context_compacted" for frame in session.durable)
    session.wire.same(info["compactions"], told, "the compactions in the meter")


def rooted():
    there = session.ask("navigated", "navigate", {"entryId": "root"})
    session.wire.same(there["leafId"], "root", "where the session stands")
    session.wire.same(session.until("session_updated")["leafId"], "root", "what is told of it")
    answer, info = session.turn("Count to 3.")
    session.wire.same(answer, "1, 2, 3", "the answer")
    said, answered = session.entries[-2:]
    session.wire.same([said["parentId"], answered["parentId"]], [None, said["entryId"]], "the branch")
    session.wire.same(info["leafId"], answered["entryId"], "the leaf")


run({
    "a turn is streamed, stored and finished": first_turn,
    "a resent command is not executed again": repeated,
    "a lost connection loses nothing": resumed,
    "a tool is run when its host is told to": hosted,
    "a fact outlives the window": past_the_window,
    "a branch begins at the root": rooted,
    "a ping is answered": lambda: session.wire.ping(),
    "the socket is closed properly": lambda: session.wire.same(session.wire.close(), 1000, "the code of closing"),
})
