"""Python's `openai` against the server: a chain, a stream that is resumed, functions, many requests at once with the
async client, conversations. Usage: `python openai_responses.py ws://ADDRESS`. Prints one line a step."""

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
for step in [chain, resumed, functions, conversation, at_once]:
    try:
        step()
        print(f"ok {step.__name__}")
    except Exception:
        failed = True
        print(f"failed {step.__name__}")
        traceback.print_exc(file=sys.stdout)
sys.exit(failed)
