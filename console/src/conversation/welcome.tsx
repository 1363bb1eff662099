// The start page: suggestions, and how to connect a real model.
import { useState } from "react";
import { newId, type Sendable } from "turnwire";
import { client } from "../client.ts";
import { can, useAbout } from "../me.ts";
import { navigate } from "../route.ts";
import { BackToList } from "../sessions/back-to-list.tsx";
import { refreshSessions } from "../sessions/store.ts";
import { read, write } from "../storage.ts";
import { Copy } from "../ui/copy.tsx";
import { Problem } from "../ui/state.tsx";
import { Composer } from "./composer.tsx";
import { DropFrame } from "./drop-frame.tsx";
import { useFiles } from "./files.ts";
import { post } from "./outbox.ts";

const PROMPTS: readonly (readonly [prompt: string, shows: string])[] = [
  ["How is the weather in Paris?", "A tool that streams its result"],
  ["Buy 100 shares of ACME, I will approve it", "A tool call that needs your approval"],
  ["Do two things in parallel: look outside and buy shares", "Two tools at once; one needs your approval"],
  ["Draw me an image of a sunset", "Text and an image"],
  ["Ask your team what makes agents work together", "A sub-agent: an agent that another agent asks"],
];

const CONNECT = `default_agent = "friday"

[agents.friday]
model = "anthropic:claude-sonnet-4-5"
api_key_env = "ANTHROPIC_API_KEY"`;

export function Welcome() {
  const files = useFiles();
  const server = useAbout();
  const { agents, defaultAgent } = server;
  const canChat = can(server, "chat");
  const [chosen, setChosen] = useState<string | null>(null);
  const [error, setError] = useState<unknown>(null);
  const agent = chosen ?? defaultAgent ?? undefined;
  const name = agent ?? "the agent";
  const about = agents?.find(({ name }) => name === agent);
  const hasModel = agents?.some(({ model }) => model !== "demo") ?? true;
  const start = async (content: Sendable, text: string) => {
    const id = newId();
    await client.create({
      id,
      ...(agent && { agent }),
      title: titleOf(
        text,
        files.list.map(({ file }) => file.name),
      ),
    });
    // The conversation shows it as being sent.
    post(id, content, text);
    // What was typed since then is a draft of the new conversation.
    write(`turnwire.draft.${id}`, read("turnwire.draft.new", "tab"), "tab");
    write("turnwire.draft.new", null, "tab");
    refreshSessions();
    navigate({ session: id, at: null });
  };
  return (
    <DropFrame files={files}>
      <header className="head">
        <BackToList leave={() => window.dispatchEvent(new Event("turnwire:list"))} />
        <h1>New conversation</h1>
      </header>
      <div className="thread-frame">
        <div className="thread" tabIndex={0} role="region" aria-label="Suggestions">
          <div className="thread-in welcome">
            <h2>What should {name} do?</h2>
            {about !== undefined && about.about !== "" && <p className="dim">{about.about}</p>}
            {error !== null && <Problem error={error} onClose={() => setError(null)} />}
            {about?.model === "demo" && canChat && (
              <ul className="prompts">
                {PROMPTS.map(([prompt, shows]) => (
                  <li key={prompt}>
                    <button type="button" onClick={() => void start(prompt, prompt).catch(setError)}>
                      <span>{prompt}</span>
                      <span className="dim">{shows}</span>
                    </button>
                  </li>
                ))}
              </ul>
            )}
            {!hasModel && <Connect />}
          </div>
        </div>
      </div>
      <Composer
        draft="new"
        agent={name}
        files={files}
        isRunning={false}
        closed={canChat ? null : "Your token can read, but not write"}
        send={start}
      >
        {agents !== null && (
          <label className="choose">
            <span className="visually-hidden">Agent</span>
            <select value={agent} onChange={(event) => setChosen(event.target.value)}>
              {agents.map(({ name, model }) => (
                <option key={name} value={name}>
                  {name === model ? name : `${name} · ${model}`}
                </option>
              ))}
              <option value="external">external · your program publishes the replies</option>
            </select>
          </label>
        )}
      </Composer>
    </DropFrame>
  );
}

function Connect() {
  return (
    <section className="connect" aria-label="Connect a real model">
      <h3>Connect a real model</h3>
      <p className="dim">
        The demo needs no API key. To use a model, save this as <code>turnwire.toml</code>, set{" "}
        <code>ANTHROPIC_API_KEY</code> and start with <code>turnwire serve --config turnwire.toml</code>:
      </p>
      <div className="copied">
        <pre tabIndex={0} aria-label="Settings">
          {CONNECT}
        </pre>
        <Copy text={CONNECT} label="Copy settings" />
      </div>
    </section>
  );
}

/** A short title from the first line of the text. */
export function titleOf(text: string, files: readonly string[]): string {
  const line = text.trim().split("\n", 1)[0] || files[0] || "New conversation";
  return line.length > 60 ? `${line.slice(0, 59).trimEnd()}…` : line;
}
