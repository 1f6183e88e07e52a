/**
 * Answers to what tools wait for, in the session that is shown, and what others have answered.
 *
 * @typedef {import("reseed-protocol").Approval} Approval
 * @typedef {import("reseed-protocol").CallResolved} Resolved
 */

import { CommandError } from "./client.js";
import { explainError } from "./errors.js";
import { CLIENT_NAME } from "./presence.js";

/** Refusals of an answer that came after another one: the card is on its way out. */
const OVER = ["too_late", "no_pending_approval"];

export class Approving {
  /** @param {import("./app.js").App} app */
  constructor(app) {
    this.app = app;
    /** @type {Set<string>} approvals that this page has answered, without those that are over */
    this.mine = new Set();
    /** @type {Map<string, string>} the tools of the approvals that were seen, by `approvalId` */
    this.names = new Map();
  }

  /**
   * Answers.
   * @param {Approval} approval
   * @param {import("reseed-protocol").ApprovalOption} option
   * @param {string} message for the model, if it is rejected
   * @returns {Promise<string | null>} null if it is answered; otherwise what went wrong, in people's words
   */
  async answer(approval, option, message) {
    const { approvalId } = approval;
    this.names.set(approvalId, approval.name);
    this.mine.add(approvalId);
    try {
      await this.app.theSession.approve(approval, option, message || undefined);
      return null;
    } catch (error) {
      this.mine.delete(approvalId);
      if (error instanceof CommandError && OVER.includes(error.code)) return "";
      return explainError(error).text;
    }
  }

  /**
   * Returns what a decision that has just become known means; null if this page knows already.
   * @param {Resolved} resolved
   */
  told({ approvalId, option, outcome, by }) {
    const name = this.names.get(approvalId ?? "") ?? "";
    this.names.delete(approvalId ?? "");
    if (approvalId === undefined || this.mine.delete(approvalId)) return null;
    const tool = name ? `the tool ${name}` : "a tool";
    if (outcome === "expired") return `Nobody answered in time: ${tool} was not run.`;
    if (option === undefined) return null;
    const did = { allow_once: "allowed", allow_always: "always allowed", reject_once: "rejected", reject_always: "always rejected" }[option];
    return `${tool.replace(/^./, (letter) => letter.toUpperCase())} was ${did} ${this.where(by)}.`;
  }

  /** @param {string | undefined} by the client that answered */
  where(by) {
    const client = this.app.snapshot?.presence.find((one) => by !== undefined && one.clientId === by)?.client;
    if (client === undefined) return "elsewhere";
    return client.name === CLIENT_NAME ? "in another window" : `in ${client.name}`;
  }

  /**
   * Lets the next such call be asked about again.
   * @param {string} approvalId
   */
  async withdraw(approvalId) {
    await this.app.quietly(this.app.theSession.withdrawApproval(approvalId));
  }
}
