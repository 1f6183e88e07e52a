// @ts-check
/** A chat in the browser. The session's id is in the address, so a reload or a second window shows the same chat. */

import { connect, textOf, tool } from "reseed-client";

const client = connect(await text("server"), { ticket: () => text("ticket", "POST") });
const options = {
  tools: {
    clock: tool({
      description: "The time where the user is.",
      parameters: { type: "object", properties: {} },
      run: () => new Date().toString(),
    }),
  },
};
const known = location.hash.slice(1);
const session = known ? client.session(known, options) : await client.createSession(options);
location.hash = session.id;

const [form, fields, input, stop, list, status] = [
  "form",
  "fieldset",
  "input",
  "[type=button]",
  "ol",
  "[role=status]",
].map((name) => /** @type {any} */ (document.querySelector(name)));

session.subscribe(show);
client.subscribe(show);
show();

function show() {
  const { snapshot } = session;
  if (!snapshot) return;
  const { usageRatio } = snapshot.contextInfo;
  status.textContent = `${client.status.phase} · ${snapshot.name} · ${Math.round(usageRatio * 100)} % full`;
  const messages = snapshot.path.entries.flatMap((entry) => (entry.type === "message" ? [entry] : []));
  const lines = [
    ...messages.map(({ role, content }) => line(role, textOf(content) || content.map((part) => part.type).join(", "))),
    ...snapshot.items.map(({ parts }) =>
      line("assistant", parts.map((part) => ("text" in part ? part.text : "…")).join("")),
    ),
    ...snapshot.queue.map(({ content }) => line("tool", `waiting: ${textOf(content)}`)),
  ];
  list.replaceChildren(...lines);
}

/** @param {string} role @param {string} words */
function line(role, words) {
  return Object.assign(document.createElement("li"), { className: role, textContent: words });
}

form.onsubmit = (/** @type {SubmitEvent} */ event) => {
  event.preventDefault();
  session.send(input.value).accepted.catch((error) => (status.textContent = error.message));
  input.value = "";
};
stop.onclick = () => session.cancelTurn();
fields.disabled = false;
input.focus();

/** @param {string} path */
async function text(path, method = "GET") {
  const response = await fetch(path, { method });
  if (!response.ok) throw new Error(`${path} returned ${response.status}`);
  return response.text();
}
