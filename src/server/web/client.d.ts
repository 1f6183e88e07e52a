// Types of `client.js`, which is generated from the same source.
export * from "../../../protocol/client/src/index.js";
