/**
 * The one door to the generated wire types. Everything in this package imports them from here.
 */

export * from "../../typescript/index.js";
