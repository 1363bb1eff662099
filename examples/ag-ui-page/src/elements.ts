// What the page shows of a thread.

import type { Interrupt, Message } from "@ag-ui/client";

export const element = <T extends HTMLElement>(selector: string) => document.querySelector<T>(selector)!;

function create(tag: string, className: string, ...children: (Node | string)[]): HTMLElement {
  const made = document.createElement(tag);
  made.className = className;
  made.append(...children);
  return made;
}

/** A message. */
export function article(message: Message): HTMLElement {
  const parts: HTMLElement[] = [];
  const text = typeof message.content === "string" ? message.content : "";
  if (message.role === "tool") parts.push(create("pre", "", text));
  else if (message.role === "reasoning") parts.push(create("p", "thinking", text));
  else if (text) parts.push(create("p", "", text));
  if (message.role === "assistant")
    for (const { function: call } of message.toolCalls ?? [])
      parts.push(create("code", "", `${call.name} ${call.arguments}`));
  return create("article", message.role, ...parts);
}

/** A call that waits for an approval. */
export function question(interrupt: Interrupt, answer: (approved: boolean) => void): HTMLElement {
  const allow = create("button", "", "Allow");
  const deny = create("button", "", "Deny");
  allow.addEventListener("click", () => answer(true));
  deny.addEventListener("click", () => answer(false));
  const text = create("span", "", interrupt.message ?? "May this call run?");
  return create("article", "approval", text, allow, deny);
}
