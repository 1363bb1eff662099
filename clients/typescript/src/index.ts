// `turnwire`: everything but the React hook. A bundler drops what is not used.

export * from "./blocks.js";
export * from "./client.js";
export * from "./message.js";
export { SessionView } from "./view.js";
