/** The only place that imports the generated wire types. Everything else in this package imports them from here. */

export * from "../../typescript/index.js";
