"""Python's `anthropic` reads what the scripted Messages server sends. Started by anthropic.mjs: `python
anthropic_streams.py BASE_URL EXPECTED`. Prints one line a step, and ends with 0 if everything held."""

import json
import sys

import anthropic

client = anthropic.Anthropic(base_url=sys.argv[1], api_key="none-needed", max_retries=0)


def described(message):
    """Describes a message as anthropic.mjs does."""
    blocks = []
    for block in message.content:
        fields = block.model_dump()
        said = next((fields[name] for name in ("text", "thinking", "data") if fields.get(name)), None)
        blocks.append(f"{block.type}:{said or json.dumps(fields['input'], separators=(',', ':'))}")
        assert block.type != "thinking" or block.signature.startswith("EuYB"), block
    usage = message.usage
    cache = []
    if usage.cache_read_input_tokens:
        hour = usage.cache_creation.ephemeral_1h_input_tokens
        cache = [usage.cache_read_input_tokens, usage.cache_creation_input_tokens, hour]
    return [*blocks, message.stop_reason, usage.input_tokens, *cache]


for name, expected in json.loads(sys.argv[2]).items():
    asked = {"model": name, "max_tokens": 100, "messages": [{"role": "user", "content": "Hello"}]}
    try:
        with client.messages.stream(**asked) as stream:
            found = described(stream.get_final_message())
    except anthropic.APIError:
        found = None
    assert found == expected, (name, found)
    print(f"ok python reads the stream: {name}", flush=True)
