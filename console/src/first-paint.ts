// Runs before anything is painted, as a script inside the page: which theme was chosen, and which panes the address
// asks for. The page that stands there before the app is then the one that the app draws. Then, with the first
// frame behind it, it begins the app.
{
  const { dataset } = document.documentElement;
  let theme: string | null = null;
  try {
    theme = localStorage.getItem("turnwire.theme");
  } catch {
    // Then the system's theme applies.
  }
  let width = 0;
  try {
    width = Number(localStorage.getItem("turnwire.list-width"));
  } catch {
    // Then it has its usual width.
  }
  if (width > 0) document.documentElement.style.setProperty("--list", `${width}px`);
  if (theme === "light" || theme === "dark") dataset["theme"] = theme;
  const { hash } = location;
  const opens = /^#\/?[^?@]/.test(hash);
  const pane = opens && /[?&]pane=(?:timeline|trace|wire|usage)(?:&|$)/.test(hash);
  dataset["opens"] = String(opens);
  dataset["pane"] = String(pane);
  dataset["shows"] = pane ? "inspect" : opens ? "conversation" : "sessions";

  const startApp = () => {
    const app = document.querySelector<HTMLLinkElement>("#app");
    // The development server starts the app by itself.
    if (app === null) return;
    const script = document.createElement("script");
    script.type = "module";
    script.src = app.href;
    document.head.append(script);
  };
  const startAfterFirstFrame = () => (document.hidden ? startApp() : requestAnimationFrame(() => setTimeout(startApp)));
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", startAfterFirstFrame);
  else startAfterFirstFrame();
}
