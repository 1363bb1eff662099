// Runs before anything is painted, as a script inside the page: which theme was chosen, and which panes the address
// asks for. The page that stands there before the app is then the one that the app draws. After the first paint it
// starts the app.
{
  /** In milliseconds: then the app starts, whatever was painted. */
  const LONGEST_WAIT = 250;
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
    if (app === null || app.dataset["started"] === "true") return;
    app.dataset["started"] = "true";
    const script = document.createElement("script");
    script.type = "module";
    script.src = app.href;
    document.head.append(script);
  };
  // The app takes longer to start than the page to be painted: on few cores one would wait for the other.
  const startAfterFirstPaint = () => {
    if (document.hidden) return startApp();
    setTimeout(startApp, LONGEST_WAIT);
    try {
      new PerformanceObserver(startApp).observe({ type: "paint", buffered: true });
    } catch {
      requestAnimationFrame(() => setTimeout(startApp));
    }
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", startAfterFirstPaint);
  else startAfterFirstPaint();
}
