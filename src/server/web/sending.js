/**
 * Inputs on their way: shown below the chat until the server has accepted them.
 *
 * @typedef {import("./client.js").LeafId} LeafId
 *
 * @typedef {object} OnItsWay
 * @property {number} number tells it from the others
 * @property {string | null} sessionId where it goes; null while its session is being made
 * @property {string} text the input as it is shown
 */

export class Sending {
  /** @param {import("./app.js").App} app */
  constructor(app) {
    this.app = app;
    /** @type {OnItsWay[]} */
    this.all = [];
    this.count = 0;
  }

  /** Those of the chat that is shown. */
  get shown() {
    return this.all.filter(({ sessionId }) => sessionId === this.app.target);
  }

  /**
   * Says something to the model.
   * @param {import("./client.js").Input} input
   * @param {string} text the input as it is shown
   * @param {{ parentId?: LeafId, whenBusy?: "steer" }} [options] `parentId`: where to go on from; `steer`: with the
   * next request of the running turn, otherwise it waits for its end
   * @param {import("./client.js").Session | null} [to] where it goes, whatever is looked at meanwhile; null: to the
   * session that is made with it
   * @returns {Promise<boolean>} whether the server has accepted it
   */
  async send(input, text, options = {}, to = this.app.session) {
    const { app } = this;
    this.count += 1;
    /** @type {OnItsWay} */
    const mine = { number: this.count, sessionId: to?.id ?? null, text };
    this.all = [...this.all, mine];
    app.changed();
    try {
      const session = to ?? (await app.create());
      mine.sessionId = session.id;
      await session.send(input, options).accepted;
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
