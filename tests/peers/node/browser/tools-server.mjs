// An MCP server over standard input and output with two tools: one runs at once, one needs an approval (by the settings).

import { createInterface } from "node:readline";

const text = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const TOOLS = [
  { name: "weather", description: "The weather of a city", inputSchema: text },
  { name: "book", description: "Books a trip to a city", inputSchema: text },
];
const ANSWERS = {
  weather: ({ city }) => `sunny in ${city}`,
  book: ({ city }) => `booked a trip to ${city}`,
};

const METHODS = {
  initialize: ({ protocolVersion }) => ({
    protocolVersion,
    capabilities: { tools: {} },
    serverInfo: { name: "travel", version: "1" },
  }),
  "tools/list": () => ({ tools: TOOLS }),
  "tools/call": ({ name, arguments: input }) => ({ content: [{ type: "text", text: ANSWERS[name](input) }] }),
  ping: () => ({}),
};

createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const result = METHODS[method]?.(params);
  const answer = result ? { result } : { error: { code: -32601, message: `no method ${method}` } };
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", id, ...answer })}\n`);
});
