#!/usr/bin/env python3
"""A webhook for reseed: takes e-mail addresses out of what users, tools and the model say.

It is required, as hooks are that do not say otherwise: what it could not look at is not stored, shown or sent.

    export REDACT_SECRET="whsec_$(head -c 32 /dev/urandom | base64)"
    python3 tests/examples/redact_webhook.py 8001

    echo '{"hooks":[{"name":"redact","url":"http://127.0.0.1:8001/","points":[{"point":"message"}],
           "secretEnv":"REDACT_SECRET"}]}' >hooks.json
    HOOKS_FILE=hooks.json cargo run --release

Nothing but Python's own library. It answers only calls whose signature is right and new (the Standard Webhooks
specification: HMAC-SHA256 over `id.timestamp.body`), so nobody else can ask it, nor ask again what was asked once.
"""

import base64
import hashlib
import hmac
import http.server
import json
import os
import re
import sys
import time

# Seconds that a call may be old, or of the future where the clocks differ.
TOLERANCE_SECS = 300

# Bytes of the largest call that is read: a message has at most one mebibyte, JSON makes more of some letters.
BODY_BYTES_MAX = 8 * 1024 * 1024

EMAIL = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+")


def is_ours(secret, headers, body, now):
    """Whether a call is signed with the secret, and is not an old one."""
    call_id = headers.get("webhook-id", "")
    timestamp = headers.get("webhook-timestamp", "")
    if not (timestamp.isascii() and timestamp.isdigit()) or abs(now - int(timestamp)) > TOLERANCE_SECS:
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{call_id}.{timestamp}.".encode() + body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest())
    # While a secret is exchanged there is a signature by each, with spaces between.
    for signature in headers.get("webhook-signature", "").split(" "):
        version, _, value = signature.partition(",")
        # In constant time, so that a signature cannot be guessed letter by letter.
        if version == "v1" and hmac.compare_digest(value.encode(), expected):
            return True
    return False


def answer(call):
    """What is answered to a call: another message, or nothing, which changes nothing."""
    if call["point"] != "message":
        return {}
    message = call["message"]
    changed = False
    for part in message["content"]:
        # What users and the model say is `text`, what a tool answered `output`.
        field = {"text": "text", "tool_result": "output"}.get(part["type"])
        if field:
            clean = EMAIL.sub("[redacted]", part[field])
            changed = changed or clean != part[field]
            part[field] = clean
    return {"message": message} if changed else {}


class Handler(http.server.BaseHTTPRequestHandler):
    """One call."""

    def do_POST(self):
        length = self.headers.get("content-length", "")
        if not (length.isascii() and length.isdigit()):
            return self.reply(411)
        if int(length) > BODY_BYTES_MAX:
            return self.reply(413)
        body = self.rfile.read(int(length))
        if not is_ours(self.server.secret, self.headers, body, time.time()):
            return self.reply(401)
        return self.reply(200, answer(json.loads(body)))

    def reply(self, status, value=None):
        body = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Says nothing: what is asked is private."""


def main():
    secret = os.environ.get("REDACT_SECRET", "")
    if not secret.startswith("whsec_"):
        sys.exit("set REDACT_SECRET to a secret that begins with whsec_")
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.secret = secret
    print(f"listening on http://127.0.0.1:{server.server_port}/", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
