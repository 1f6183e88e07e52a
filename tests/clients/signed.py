"""Tokens that PyJWT signs, against a server that knows their public keys.

    signed.py keys FOLDER       makes keys, and writes the public ones as FOLDER/keys.json
    signed.py URL FOLDER        says hello with tokens that these keys sign, and with forged ones
"""

import asyncio
import json
import sys
import time

import jwt
import websockets
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

MAKES = {
    "RS256": (lambda: rsa.generate_private_key(65537, 2048), RSAAlgorithm),
    "PS256": (lambda: rsa.generate_private_key(65537, 3072), RSAAlgorithm),
    "ES256": (lambda: ec.generate_private_key(ec.SECP256R1()), ECAlgorithm),
    "ES384": (lambda: ec.generate_private_key(ec.SECP384R1()), ECAlgorithm),
    "EdDSA": (ed25519.Ed25519PrivateKey.generate, OKPAlgorithm),
}


def make_keys(folder):
    listed = []
    for algorithm, (make, library) in MAKES.items():
        key = make()
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        with open(f"{folder}/{algorithm}.pem", "wb") as file:
            file.write(pem)
        public = library.to_jwk(key.public_key(), as_dict=True)
        listed.append({**public, "kid": f"key-{algorithm}", "key_ops": ["verify"]})
    with open(f"{folder}/keys.json", "w", encoding="ascii") as file:
        json.dump({"keys": listed}, file)


def claims(**changes):
    """Returns the claims of a token that is accepted, with changes; `None` removes one."""
    now = int(time.time())
    good = {"iss": "https://id.example", "aud": "chat", "sub": "17", "iat": now, "nbf": now, "exp": now + 300}
    return {name: value for name, value in {**good, **changes}.items() if value is not None}


async def greeted(url, token):
    """Says hello; returns the type of the answer, and the code of an error."""
    async with websockets.connect(url, subprotocols=["reseed.v2"]) as socket:
        hello = {"id": "1", "type": "hello", "payload": {"protocolVersion": 2, "token": token}}
        await socket.send(json.dumps(hello))
        answer = json.loads(await asyncio.wait_for(socket.recv(), 20))
        return answer["type"], answer["payload"].get("code")


async def main(url, folder):
    keys = {}
    for algorithm in MAKES:
        with open(f"{folder}/{algorithm}.pem", "rb") as file:
            keys[algorithm] = serialization.load_pem_private_key(file.read(), None)

    def signed(algorithm, key=None, **changes):
        headers = {"kid": f"key-{algorithm}"}
        return jwt.encode(claims(**changes), key or keys[algorithm], algorithm, headers=headers)

    for algorithm in keys:
        assert await greeted(url, signed(algorithm)) == ("welcome", None), algorithm
        print(f"ok {algorithm} is accepted", flush=True)
    now = int(time.time())
    public = keys["RS256"].public_key().public_numbers().n.to_bytes(256, "big")
    forged = {
        "not signed": jwt.encode(claims(), None, "none"),
        "a public key as a secret": jwt.encode(claims(), public, "HS256", headers={"kid": "key-RS256"}),
        "another's key": signed("RS256", key=rsa.generate_private_key(65537, 2048)),
        "a foreign audience": signed("ES256", aud="mail"),
        "a foreign issuer": signed("ES256", iss="https://evil.example"),
        "expired": signed("ES256", exp=now - 60),
        "not valid yet": signed("ES256", nbf=now + 120),
        "never expiring": signed("ES256", exp=None),
    }
    for what, token in forged.items():
        assert await greeted(url, token) == ("error", "unauthenticated"), what
        print(f"ok {what} is refused", flush=True)


if sys.argv[1] == "keys":
    make_keys(sys.argv[2])
else:
    asyncio.run(main(sys.argv[1] + "/ws", sys.argv[2]))
