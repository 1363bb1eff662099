// The wires, with example code of a client for each.

export interface Where {
  /** The server's URL, with its path prefix if any. */
  base: string;
  session: string;
  agent: string;
  /** Whether the server requires a token. */
  token: boolean;
}

export interface Snippet {
  /** The language. */
  label: string;
  text: string;
}

export interface Wire {
  name: string;
  about: string;
  client: (where: Where) => Snippet;
}

/** A string literal of JavaScript, Python or Java. */
const quote = (text: string): string => JSON.stringify(text);
/** A text quoted for a shell. */
export const shell = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;

const key = ({ token }: Where): string => (token ? 'os.environ["TURNWIRE_TOKEN"]' : '"none"');
const os = ({ token }: Where): string => (token ? "import os\n" : "");

function python(where: Where, text: string): Snippet {
  return { label: "Python", text: os(where) + text };
}

/** Every wire that can be encoded, as `turnwire wires` lists them. */
export const WIRES: Wire[] = [
  {
    name: "turnwire",
    about: "Turnwire’s own events",
    client: ({ base, session, token }) => ({
      label: "TypeScript",
      text: `import { connect } from "turnwire";

const client = connect({ url: ${quote(base)}${token ? ", token: process.env.TURNWIRE_TOKEN" : ""} });
for await (const event of client.session(${quote(session)}).watch()) {
  console.log(event.seq, event.type);
}`,
    }),
  },
  {
    name: "agentscope",
    about: "AgentScope 2.x for Python and TypeScript",
    client: (where) =>
      python(
        where,
        `import httpx, json

url = ${quote(`${where.base}/v1/sessions/${encodeURIComponent(where.session)}/events?wire=agentscope`)}
${where.token ? 'headers = {"Authorization": f"Bearer {os.environ[\'TURNWIRE_TOKEN\']}"}\n' : ""}with httpx.stream("GET", url, timeout=None${where.token ? ", headers=headers" : ""}) as response:
    for line in response.iter_lines():
        if line.startswith("data: "):
            event = json.loads(line[6:])  # a field for each of the package's event classes
            print(event["type"])`,
      ),
  },
  {
    name: "agentscope-java",
    about: "AgentScope for Java 2.x",
    client: ({ base, session, token }) => ({
      label: "Java",
      text: `var request = HttpRequest.newBuilder(URI.create(${quote(`${base}/v1/sessions/${encodeURIComponent(session)}/events?wire=agentscope-java`)}))${token ? '\n    .header("Authorization", "Bearer " + System.getenv("TURNWIRE_TOKEN"))' : ""}
    .build();
HttpClient.newHttpClient().send(request, BodyHandlers.ofLines()).body()
    .filter(line -> line.startsWith("data: "))
    .forEach(line -> System.out.println(line.substring(6)));`,
    }),
  },
  {
    name: "blocks",
    about: "content blocks over WebSocket",
    client: ({ base, session, token }) => ({
      label: "JavaScript",
      text: `const socket = new WebSocket(${quote(`${base.replace(/^http/, "ws")}/v1/ws`)});
const send = (command) => socket.send(JSON.stringify(command));
socket.onmessage = ({ data }) => {
  const frame = JSON.parse(data);
${token ? '  if (frame.type === "connected") send({ type: "auth", token });\n' : ""}  if (frame.type === ${token ? '"auth_ok"' : '"connected"'}) send({ type: "subscribe", session_id: ${quote(session)} });
  console.log(frame);
};`,
    }),
  },
  {
    name: "ag-ui",
    about: "AG-UI 1.0",
    client: ({ base, session, agent, token }) => ({
      label: "JavaScript",
      text: `import { HttpAgent } from "@ag-ui/client";

const agent = new HttpAgent({
  url: ${quote(`${base}/ag-ui/${encodeURIComponent(agent)}`)},
  threadId: ${quote(session)},${token ? "\n  headers: { Authorization: `Bearer ${process.env.TURNWIRE_TOKEN}` }," : ""}
});
await agent.runAgent(); // comes back to the thread; its messages are then in agent.messages`,
    }),
  },
  {
    name: "ai-sdk",
    about: "UI message stream of the AI SDK",
    client: ({ base, session, agent, token }) => ({
      label: "React",
      text: `import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport } from "ai";

const transport = new DefaultChatTransport({
  api: ${quote(`${base}/ai-sdk/${encodeURIComponent(agent)}`)},${token ? "\n  headers: { authorization: `Bearer ${token}` }," : ""}
});
// In a component:
const chat = useChat({ id: ${quote(session)}, transport, resume: true });`,
    }),
  },
  {
    name: "openai-chat",
    about: "OpenAI Chat Completions",
    client: (where) =>
      python(
        where,
        `from openai import OpenAI

client = OpenAI(base_url=${quote(`${where.base}/v1`)}, api_key=${key(where)})
stream = client.chat.completions.create(
    model=${quote(where.agent)},
    messages=[{"role": "user", "content": "weather"}],
    extra_headers={"turnwire-session": ${quote(where.session)}},
    stream=True,
)
for chunk in stream:
    print(chunk.choices[0].delta.content or "" if chunk.choices else "", end="")`,
      ),
  },
  {
    name: "openai-responses",
    about: "OpenAI Responses",
    client: (where) =>
      python(
        where,
        `from openai import OpenAI

client = OpenAI(base_url=${quote(`${where.base}/v1`)}, api_key=${key(where)})
with client.responses.stream(
    model=${quote(where.agent)},
    input="weather",
    extra_headers={"turnwire-session": ${quote(where.session)}},
) as stream:
    for event in stream:
        print(event.type)`,
      ),
  },
  {
    name: "anthropic",
    about: "Anthropic Messages",
    client: (where) =>
      python(
        where,
        `import anthropic

client = anthropic.Anthropic(base_url=${quote(where.base)}, api_key=${key(where)})
with client.messages.stream(
    model=${quote(where.agent)},
    max_tokens=1000,
    messages=[{"role": "user", "content": "weather"}],
    extra_headers={"turnwire-session": ${quote(where.session)}},
) as stream:
    for text in stream.text_stream:
        print(text, end="")`,
      ),
  },
];

/** The same stream with curl. */
export function curl({ base, session, token }: Where, wire: string): Snippet {
  const query = wire === "turnwire" ? "" : `?wire=${wire}`;
  const url = `${base}/v1/sessions/${encodeURIComponent(session)}/events${query}`;
  return { label: "curl", text: `curl -N ${token ? '-H "Authorization: Bearer $TURNWIRE_TOKEN" ' : ""}${shell(url)}` };
}
