// Finds the part of the conversation that belongs to a step, and shows it. The focus stays: arrow keys go on in the trace.
import { revealElement } from "../conversation/jump.ts";

export function showPlace(reply: string, call: string): void {
  const main = document.querySelector(".thread");
  const find = (name: string, value: string) =>
    value === "" ? null : main?.querySelector<HTMLElement>(`[data-${name}="${CSS.escape(value)}"]`);
  const found = find("call", call) ?? find("message", reply);
  if (found) revealElement(found, false);
}
