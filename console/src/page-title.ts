// The title and the icon of the tab: what is open, and how many questions wait.
import { visible } from "./conversation/json.ts";

let name = "";
let waiting = 0;

function show(): void {
  document.title = `${waiting > 0 ? `(${waiting}) ` : ""}${name === "" ? "" : `${name} · `}Turnwire`;
}

/** The name of what is open; returns what removes it. */
export function setPageTitle(to: string): () => void {
  name = visible(to);
  show();
  return () => {
    name = "";
    show();
  };
}

/** Shows the number of waiting questions in the title and the icon. */
export function setWaiting(count: number): void {
  if (count === waiting) return;
  waiting = count;
  show();
  const icon = document.querySelector<HTMLLinkElement>('link[rel="icon"]');
  if (icon !== null) icon.href = count > 0 ? badge(count) : "./favicon.svg";
}

/** The icon with a number. */
function badge(count: number): string {
  const text = count > 9 ? "9+" : String(count);
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#b45309"/><text x="16" y="23" font-family="sans-serif" font-size="20" font-weight="700" text-anchor="middle" fill="#fff">${text}</text></svg>`;
  return `data:image/svg+xml,${encodeURIComponent(svg)}`;
}
