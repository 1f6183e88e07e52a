/**
 * Inputs in flight: shown below the chat until the server has accepted them.
 *
 * @typedef {import("./client.js").LeafId} LeafId
 * @typedef {import("reseed-protocol").Part} Part
 *
 * @typedef {object} OnItsWay
 * @property {number} number identifies the input
 * @property {string | null} sessionId its session; null while that is being created
 * @property {readonly Part[]} content
 */

export class Sending {
  /** @param {import("./app.js").App} app */
  constructor(app) {
    this.app = app;
    /** @type {OnItsWay[]} */
    this.all = [];
    this.count = 0;
  }

  /** Returns the inputs of the displayed chat. */
  get shown() {
    return this.all.filter(({ sessionId }) => sessionId === this.app.target);
  }

  /**
   * Sends an input to the model.
   * @param {readonly Part[]} content
   * @param {{ parentId?: LeafId, whenBusy?: "steer" }} [options] `parentId`: the entry to continue from; `steer`: send
   * it with the next request of the running turn instead of after the turn
   * @param {import("./client.js").Session | null} [to] the session to send to, whichever one is displayed meanwhile;
   * null: a session created for this input
   * @returns {Promise<boolean>} true once the server has accepted it
   */
  async send(content, options = {}, to = this.app.session) {
    const { app } = this;
    this.count += 1;
    /** @type {OnItsWay} */
    const mine = { number: this.count, sessionId: to?.id ?? null, content };
    this.all = [...this.all, mine];
    app.changed();
    try {
      const session = to ?? (await app.create());
      mine.sessionId = session.id;
      await session.send(inputOf(content), options).accepted;
      return true;
    } catch (error) {
      app.fail(error);
      return false;
    } finally {
      this.all = this.all.filter((one) => one !== mine);
      app.changed();
    }
  }
}

/**
 * Turns parts into user input.
 * @param {readonly Part[]} content
 * @returns {import("reseed-protocol").Input}
 */
function inputOf(content) {
  const [first] = content;
  if (content.length === 1 && first.type === "text") return first.text;
  return [{ role: "user", content: content.filter((part) => part.type === "text" || part.type === "image") }];
}
