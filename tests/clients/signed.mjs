// Tests tokens signed by npm's `jose` against a server that knows their public keys.
//
//     signed.mjs keys FOLDER       generates keys, and writes the public ones to FOLDER/keys.json
//     signed.mjs URL FOLDER        says hello with tokens signed by these keys, and with forged ones
//
// `jose` and `ws` are found through NODE_PATH.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(import.meta.url);
const { default: WebSocket } = await import(pathToFileURL(require.resolve("ws")));
const jose = await import(pathToFileURL(require.resolve("jose")));

const ALGORITHMS = ["RS256", "RS512", "PS256", "ES256", "ES384", "EdDSA"];
const [first, folder] = process.argv.slice(2);

async function makeKeys() {
    const keys = [];
    for (const algorithm of ALGORITHMS) {
        const { publicKey, privateKey } = await jose.generateKeyPair(algorithm, { extractable: true });
        writeFileSync(`${folder}/${algorithm}.json`, JSON.stringify(await jose.exportJWK(privateKey)));
        keys.push({ ...(await jose.exportJWK(publicKey)), kid: `key-${algorithm}`, alg: algorithm, use: "sig" });
    }
    writeFileSync(`${folder}/keys.json`, JSON.stringify({ keys }));
}

// Returns a token with these changes to the claims; `undefined` removes one.
function signed(algorithm, key, changes = {}) {
    const now = Math.floor(Date.now() / 1000);
    const claims = { iss: "https://id.example", aud: ["mail", "chat"], sub: "17", iat: now, exp: now + 300, ...changes };
    return new jose.SignJWT(claims).setProtectedHeader({ alg: algorithm, kid: `key-${algorithm}`, typ: "at+jwt" }).sign(key);
}

// Says hello. Resolves with the type of the answer, or with an error's code.
function greeted(token) {
    return new Promise((resolve, reject) => {
        const socket = new WebSocket(`${first}/ws`, ["reseed.v2"]);
        const hello = { id: "1", type: "hello", payload: { protocolVersion: 2, token } };
        socket.on("open", () => socket.send(JSON.stringify(hello)));
        socket.on("error", reject);
        socket.on("close", (code) => reject(new Error(`closed with ${code} before an answer`)));
        socket.on("message", (text) => {
            const answer = JSON.parse(text);
            resolve(answer.type === "error" ? answer.payload.code : answer.type);
            socket.close();
        });
    });
}

async function main() {
    const keys = {};
    for (const algorithm of ALGORITHMS) {
        keys[algorithm] = await jose.importJWK(JSON.parse(readFileSync(`${folder}/${algorithm}.json`)), algorithm);
        assert.equal(await greeted(await signed(algorithm, keys[algorithm])), "welcome", algorithm);
        console.log(`ok ${algorithm} is accepted`);
    }
    const now = Math.floor(Date.now() / 1000);
    const listed = JSON.parse(readFileSync(`${folder}/keys.json`)).keys;
    const secret = Buffer.from(listed.find((key) => key.kid === "key-RS256").n, "base64url");
    const stranger = await jose.generateKeyPair("ES256");
    const good = await signed("ES256", keys.ES256);
    const forged = {
        "not signed": new jose.UnsecuredJWT({ iss: "https://id.example", aud: "chat", sub: "17", exp: now + 300 }).encode(),
        "a public key as a secret": await signed("HS256", secret),
        "another's key": await signed("ES256", stranger.privateKey),
        "changed": good.replace(/\.[^.]*\./, `.${jose.base64url.encode(JSON.stringify({ sub: "18" }))}.`),
        "a foreign audience": await signed("ES256", keys.ES256, { aud: ["mail"] }),
        "a foreign issuer": await signed("ES256", keys.ES256, { iss: "https://evil.example" }),
        "expired": await signed("ES256", keys.ES256, { exp: now - 60 }),
        "not valid yet": await signed("ES256", keys.ES256, { nbf: now + 120 }),
        "never expiring": await signed("ES256", keys.ES256, { exp: undefined }),
    };
    for (const [what, token] of Object.entries(forged)) {
        assert.equal(await greeted(token), "unauthenticated", what);
        console.log(`ok ${what} is refused`);
    }
}

await (first === "keys" ? makeKeys() : main());
