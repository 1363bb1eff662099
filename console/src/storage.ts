// What the browser keeps. Where it keeps nothing, everything works until the page is closed.
export function read(key: string, from: "local" | "tab" = "local"): string | null {
  try {
    return (from === "local" ? localStorage : sessionStorage).getItem(key);
  } catch {
    return null;
  }
}

/** `null` removes it. */
export function write(key: string, value: string | null, to: "local" | "tab" = "local"): void {
  try {
    const storage = to === "local" ? localStorage : sessionStorage;
    if (value === null) storage.removeItem(key);
    else storage.setItem(key, value);
  } catch {
    // Then it is lost with the page.
  }
}
