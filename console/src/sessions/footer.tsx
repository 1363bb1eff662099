import { setToken, useToken } from "../client.ts";
import { showKeys } from "../help.tsx";
import { nextTheme, useTheme } from "../theme.ts";
import { Icon } from "../ui/icon.tsx";
import { Shape } from "../ui/state.tsx";
import { More } from "./more.tsx";
import { refreshSessions, useSessions } from "./store.ts";

const THEMES = { system: "auto", light: "sun", dark: "moon" } as const;

/** Connection state, theme and keys. */
export function Footer() {
  const isSigned = useToken() !== "";
  const { error, isLoaded, isLocked } = useSessions();
  const theme = useTheme();
  const signOut = () => {
    setToken("");
    refreshSessions();
  };
  const text = isLocked
    ? "not signed in"
    : error !== null
      ? "server unreachable"
      : !isLoaded
        ? "connecting"
        : isSigned
          ? "signed in"
          : "local, no auth";
  return (
    <div className="foot">
      <span className="foot-state" role="status" aria-label="Server">
        <Shape tone={isLocked || error !== null ? "bad" : isLoaded ? "ok" : "run"} /> {text}
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
      <button type="button" className="icon-button" aria-label="Keys" title="Keys (?)" onClick={showKeys}>
        <Icon name="keys" />
      </button>
    </div>
  );
}
