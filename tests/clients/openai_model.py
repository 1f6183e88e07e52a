"""Python's `openai` in front of a scripted model: typed answers and images, by Responses and by Chat Completions. Started
by openai_model.mjs: `python openai_model.py BASE_URL IMAGE`. Ends with 0 if everything held."""

import sys

import openai
import pydantic

MODEL = "scripted"
client = openai.OpenAI(base_url=sys.argv[1], api_key="none-needed", max_retries=0)


class Weather(pydantic.BaseModel):
    place: str
    knots: float


expected = Weather(place="Genoa", knots=12)
parsed = client.responses.parse(model=MODEL, input="How is the wind?", text_format=Weather)
assert parsed.output_parsed == expected, parsed
with client.responses.stream(model=MODEL, input="How is the wind?", text_format=Weather) as stream:
    assert stream.get_final_response().output_parsed == expected
messages = [{"role": "user", "content": "How is the wind?"}]
completion = client.chat.completions.parse(model=MODEL, messages=messages, response_format=Weather)
assert completion.choices[0].message.parsed == expected, completion
content = [{"type": "input_text", "text": "What is this?"}, {"type": "input_image", "image_url": sys.argv[2]}]
seen = client.responses.create(model=MODEL, input=[{"role": "user", "content": content}])
assert seen.output_text.strip() == "I see 1 images.", seen
