import { HttpAgent, type ResumeEntry } from "@ag-ui/client";
import { article, element, question } from "./elements";

// The id of the thread is in the address: a reload continues it. It is the Turnwire session.
const threadId = location.hash.slice(1) || crypto.randomUUID();
history.replaceState(null, "", `#${threadId}`);
addEventListener("hashchange", () => location.reload());

/** Your agent's name instead of `demo`. `vite.config.js` forwards the requests to Turnwire. */
const url = "/ag-ui/demo";
const agent = new HttpAgent({ url, threadId });
agent.subscribe({
  onMessagesChanged: draw,
  onRunErrorEvent: ({ event }) => notify(event.message),
});

let isRunning = false;

/**
 * Sends what is new, and follows the reply until it ends or asks. A lost connection ends no reply: the same run again
 * gets the current state, and sends nothing twice.
 */
async function run(resume?: ResumeEntry[]): Promise<void> {
  isRunning = true;
  for (let isDone = false; !isDone; ) {
    try {
      notify("");
      await agent.runAgent({ resume });
      isDone = true;
    } catch (error) {
      const { status = 0, message } = error as Error & { status?: number };
      const isLost = error instanceof TypeError || status >= 500;
      notify(isLost ? "Connecting…" : message);
      if (isLost) await new Promise((resolve) => setTimeout(resolve, 500));
      isDone = !isLost;
    }
  }
  isRunning = false;
  draw();
}

/** The answers so far. They are sent once all are given. */
const answers = new Map<string, boolean>();

function answer(interruptId: string, approved: boolean): void {
  answers.set(interruptId, approved);
  const resume = agent.pendingInterrupts.map(({ id }): ResumeEntry => {
    return { interruptId: id, status: "resolved", payload: { approved: answers.get(id) } };
  });
  if (agent.pendingInterrupts.every(({ id }) => answers.has(id))) void run(resume);
  else draw();
}

element("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const form = event.target as HTMLFormElement;
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content: String(new FormData(form).get("text")) });
  form.reset();
  void run();
});

element("#stop").addEventListener("click", () => fetch(`${url}/${threadId}/stop`, { method: "POST" }));

function notify(text: string): void {
  element("#notice").textContent = text;
}

let frame = 0;

/** Shows everything, once before the next frame. */
function draw(): void {
  cancelAnimationFrame(frame);
  frame = requestAnimationFrame(() => {
    const messages = agent.messages.filter((message) => !("subagentRunId" in message));
    const open = isRunning ? [] : agent.pendingInterrupts.filter(({ id }) => !answers.has(id));
    element("#messages").replaceChildren(
      ...messages.map(article),
      ...open.map((interrupt) => question(interrupt, (approved) => answer(interrupt.id, approved))),
    );
    element("#stop").hidden = !isRunning && open.length === 0;
    element<HTMLButtonElement>("#send").disabled = isRunning || open.length > 0;
  });
}

// Reads the thread, and follows its reply if one runs.
void run();
