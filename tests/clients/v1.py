"""A v1 client: `python v1.py ws://HOST:PORT`. The order of a turn's frames, the meter, compaction and refusals."""

import sys

from wire import Wire, run

STRATEGY = "ThresholdContextManager"
# Fills an eighth of the window, so that there is something to compact soon.
BALLAST = "Ballast: " + "sand gravel stone " * 200

# The bare address: v1 is spoken there too.
wire = Wire(f"{sys.argv[1]}/")


def turn(text):
    """A whole turn, frame by frame; the answer's text."""
    content = [{"type": "input_text", "text": text}]
    wire.send("user_input", {"input": [{"type": "message", "role": "user", "content": content}]})
    wire.same(wire.next_of("loading_state"), {"loading": True}, "the first frame")
    item = wire.next_of("response_item")
    wire.same([item["type"], item["role"]], ["message", "assistant"], "the item")
    wire.same(wire.next_of("loading_state"), {"loading": False}, "the frame after the item")
    wire.check_info(wire.next_of("context_info"), STRATEGY)
    wire.same(list(wire.next_of("agent_finished")), ["responseId"], "the fields of agent_finished")
    return "".join(part["text"] for part in item["content"])


def meter():
    """The meter on request; it also shows that nothing else was still to come."""
    command_id = wire.send("get_context_info")
    frame = wire.next()
    wire.same([frame["id"], frame["type"]], [command_id, "context_info"], "the next frame")
    wire.check_info(frame["payload"], STRATEGY)
    return frame["payload"]


def turns():
    wire.same(turn("Repeat after me: naïve ferries 🚢 你好"), "naïve ferries 🚢 你好", "the answer")
    turn("The harbour code is K7-tango-42.")
    answer = turn("What is the harbour code?")
    wire.expect("K7-tango-42" in answer, f"the answer is {answer}")
    wire.same(meter()["transcriptLength"], 6, "the transcript's length")


def refusals():
    wire.send("manual_compact")
    wire.same(wire.next_of("error")["details"]["code"], "nothing_to_compact", "the code")
    wire.send("approval_response", {"review": "no-exit"})
    wire.same(wire.next_of("error")["details"]["code"], "no_pending_approval", "the code")
    meter()


def compaction():
    for _ in range(4):
        turn(BALLAST)
    before = meter()["tokenCount"]
    wire.send("manual_compact")
    wire.check_compacted(wire.next_of("context_compacted"), "manual", STRATEGY)
    after = meter()["tokenCount"]
    wire.expect(after < before, f"{before} tokens became {after}")


run({
    "turns have their frames in order": turns,
    "refusals have their codes": refusals,
    "manual_compact reports the true numbers and nothing else": compaction,
    "a ping is answered": wire.ping,
    "the socket is closed properly": lambda: wire.same(wire.close(), 1000, "the code of closing"),
})
