// The types of `client.js`, which is written from the same source.
export * from "../../../protocol/client/src/index.js";
