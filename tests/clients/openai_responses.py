"""Python's `openai` against the server: a chain, a stream that is resumed, functions, the background, pages of items,
several chains on a WebSocket, many requests at once with the async client, conversations. Usage: `python openai_responses.py ws://ADDRESS`. Prints one line a step."""

import asyncio
import sys
import traceback

import openai

BASE = sys.argv[1].replace("ws", "http", 1) + "/v1"
MODEL = "offline"
client = openai.OpenAI(base_url=BASE, api_key="none-needed")


def chain():
    one = client.responses.create(model=MODEL, input="My code is K7-tango-42.", instructions="Be brief.")
    two = client.responses.create(model=MODEL, input="What is my code?", previous_response_id=one.id)
    assert "K7-tango-42" in two.output_text, two.output_text
    again = client.responses.retrieve(two.id)
    assert again.output == two.output and again.usage == two.usage
    client.responses.delete(two.id)
    try:
        client.responses.retrieve(two.id)
    except openai.NotFoundError:
        return
    raise AssertionError("a deleted response was retrieved")


def resumed():
    events = list(client.responses.create(model=MODEL, input="count to 12", stream=True))
    middle = len(events) // 2
    rest = client.responses.retrieve(
        events[0].response.id, stream=True, starting_after=events[middle].sequence_number
    )

    def text(some):
        return "".join(getattr(event, "delta", "") for event in some)

    assert text(events[: middle + 1]) + text(rest) == text(events)


def functions():
    tool = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}, "strict": False}
    one = client.responses.create(model=MODEL, input="use look", tools=[tool])
    calls = [item for item in one.output if item.type == "function_call"]
    assert len(calls) == 1, one.output
    result = [{"type": "function_call_output", "call_id": calls[0].call_id, "output": "calm sea"}]
    two = client.responses.create(model=MODEL, previous_response_id=one.id, input=result, tools=[tool])
    assert "calm sea" in two.output_text, two.output_text


def background():
    made = client.responses.create(model=MODEL, input="write 5000 words", background=True)
    assert made.status in ("queued", "in_progress"), made.status
    assert client.responses.cancel(made.id).status == "cancelled"
    assert client.responses.retrieve(made.id).status == "cancelled"


def input_items():
    roles = ["user", "assistant", "user"]
    said = [{"role": role, "content": f"{role} {n}"} for n, role in enumerate(roles)]
    made = client.responses.create(model=MODEL, input=said)
    pages = client.responses.input_items.list(made.id, order="asc", limit=2)
    assert [item.content[0].text for item in pages] == ["user 0", "assistant 1", "user 2"], pages


def websocket():
    with client.responses.connect() as connection:

        def create(**frame):
            connection.response.create(model=MODEL, **frame)
            for event in connection:
                if event.type in ("response.completed", "response.incomplete", "response.failed", "error"):
                    return event

        # One chain is stored, the other is not.
        chains = {fact: create(input=f"My flag is {fact}.", store=store) for fact, store in [("red", True), ("blue", False)]}
        for _ in range(2):
            for fact, last in chains.items():
                again = dict(previous_response_id=last.response.id, store=fact == "red")
                chains[fact] = create(input="What is my flag?", **again)
                assert fact in str(chains[fact].response.output), chains[fact]
        assert create(input="x", previous_response_id="resp_none_none").type == "error"
        assert create(input="count to 2").type == "response.completed"


def conversation():
    made = client.conversations.create(items=[{"role": "user", "content": "My harbour is Genoa.", "type": "message"}])
    said = client.responses.create(model=MODEL, conversation=made.id, input="Where is my harbour?")
    assert "Genoa" in said.output_text, said.output_text
    assert len(client.conversations.items.list(made.id).data) == 3
    client.conversations.delete(made.id)


def at_once():
    async def all_of_them():
        many = openai.AsyncOpenAI(base_url=BASE, api_key="none-needed")
        asked = [many.responses.create(model=MODEL, input=f"count to {n}") for n in range(2, 10)]
        for n, response in zip(range(2, 10), await asyncio.gather(*asked)):
            assert str(n) in response.output_text, response.output_text

    asyncio.run(all_of_them())


failed = False
for step in [chain, resumed, functions, background, input_items, websocket, conversation, at_once]:
    try:
        step()
        print(f"ok {step.__name__}")
    except Exception:
        failed = True
        print(f"failed {step.__name__}")
        traceback.print_exc(file=sys.stdout)
sys.exit(failed)
