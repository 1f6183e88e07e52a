/**
 * Checks the AsyncAPI document with AsyncAPI's own parser, from NODE_PATH: `node asyncapi.mjs`. The parser validates
 * the document against version 3 and follows its references into the JSON Schema.
 */

import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { Unexpected, run } from "./wire.mjs";

/**
 * The parser's severity for what makes a document invalid; milder ones are advice, for instance to use a newer version.
 */
const ERROR = 0;

const place = fileURLToPath(new URL("../../protocol/schema/reseed.asyncapi.json", import.meta.url));

await run({
  "AsyncAPI's parser accepts the document and finds every operation with its messages": async () => {
    // `import` does not search NODE_PATH, `require` does.
    const { Parser, fromFile } = createRequire(import.meta.url)("@asyncapi/parser");
    const { document, diagnostics } = await fromFile(new Parser(), place).parse();
    const errors = diagnostics.filter((found) => found.severity === ERROR);
    const shown = errors.slice(0, 5).map((found) => `${found.path.join("/")}: ${found.message}`);
    if (!document) throw new Unexpected(`${errors.length} errors: ${shown.join("; ")}`);
    const empty = document.allOperations().filter((operation) => operation.messages().isEmpty());
    if (document.allOperations().length < 30 || empty.length > 0) {
      throw new Unexpected(`${document.allOperations().length} operations, ${empty.length} of them without messages`);
    }
  },
});
