// The client as applications have it, without a browser; and a server that says what it is told.
import { once } from "node:events";
import http from "node:http";
import { AbstractChat } from "ai";

class PlainState {
  status = "ready";
  error = undefined;
  messages = [];
  pushMessage = (message) => {
    this.messages = [...this.messages, message];
  };
  popMessage = () => {
    this.messages = this.messages.slice(0, -1);
  };
  replaceMessage = (index, message) => {
    this.messages = this.messages.map((old, at) => (at === index ? structuredClone(message) : old));
  };
  snapshot = (thing) => structuredClone(thing);
}

export class Chat extends AbstractChat {
  constructor(init) {
    super({ ...init, state: new PlainState() });
  }
}

// Serves `posts` in order, then `resumed` (null: nothing runs), and keeps what was posted. After a
// body that `breaks` the connection does.
export async function serve({ posts = [], resumed = null, breaks = () => false }, use) {
  const posted = [];
  const server = http.createServer(async (request, response) => {
    let text = "";
    for await (const piece of request) text += piece;
    const body = request.method === "POST" ? posts[posted.push(JSON.parse(text)) - 1] : resumed;
    if (body == null) {
      response.writeHead(request.method === "POST" ? 409 : 204).end();
      return;
    }
    response.writeHead(200, {
      "content-type": "text/event-stream",
      "x-vercel-ai-ui-message-stream": "v1",
    });
    response.write(body);
    if (breaks(body)) {
      // The connection breaks once the client has it all.
      setImmediate(() => response.destroy());
    } else {
      response.end();
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    return await use(`http://127.0.0.1:${server.address().port}/ai-sdk/friday`, posted);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

// Waits for a condition, and fails where it does not come about.
export async function until(condition, what) {
  const deadline = Date.now() + 30_000;
  while (!condition()) {
    if (Date.now() > deadline) throw new Error(`it did not come about: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}
