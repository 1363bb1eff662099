import { setToken, useToken } from "../client.ts";
import { showKeys } from "../help.tsx";
import { nextTheme, useTheme } from "../theme.ts";
import { Icon } from "../ui/icon.tsx";
import { Shape } from "../ui/state.tsx";
import { More } from "./more.tsx";
import { refreshSessions, useSessions } from "./store.ts";

const THEMES = { system: "auto", light: "sun", dark: "moon" } as const;

/** Who is signed in, theme and keys. */
export function Footer() {
  const isSigned = useToken() !== "";
  const { isLoaded, isLocked } = useSessions();
  const theme = useTheme();
  const signOut = () => {
    setToken("");
    refreshSessions();
  };
  const text = isLocked ? "Not signed in" : !isLoaded ? "Connecting" : isSigned ? "Signed in" : "Local, no auth";
  return (
    <div className="foot">
      <span className="foot-state" role="status" aria-label="Server">
        <Shape tone={isLocked ? "bad" : isLoaded ? "ok" : "run"} /> {text}
      </span>
      {isSigned && !isLocked && (
        <button type="button" className="link" onClick={signOut}>
          Sign out
        </button>
      )}
      <span className="grow" />
      {!isLocked && <More />}
      <button
        type="button"
        className="icon-button"
        aria-label={`Theme: ${theme}`}
        title={`Theme: ${theme}`}
        onClick={nextTheme}
      >
        <Icon name={THEMES[theme]} />
      </button>
      <button
        type="button"
        className="icon-button"
        aria-label="Keyboard shortcuts"
        title="Keyboard shortcuts (?)"
        onClick={showKeys}
      >
        <Icon name="keys" />
      </button>
    </div>
  );
}
