import { useId, useState } from "react";
import { explain, setToken, useToken } from "../client.ts";
import { refreshSessions } from "./store.ts";

/** The server wants a token. It is kept as long as this tab is open, or longer if somebody wants that. */
export function SignIn({ error }: { error: Error | null }) {
  const token = useToken();
  const [text, setText] = useState("");
  const [isKept, setKept] = useState(false);
  const id = useId();
  return (
    <main className="conversation sign-in">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          setToken(text.trim(), isKept);
          setText("");
          refreshSessions();
        }}
      >
        <h1>Sign in</h1>
        <p className="dim">
          This server requires a token. Its operator creates one with <code>turnwire token new</code>.
        </p>
        <div className="field">
          <label htmlFor={id}>Token</label>
          <input
            id={id}
            type="password"
            autoComplete="current-password"
            value={text}
            required
            autoFocus
            onChange={(event) => setText(event.target.value)}
          />
        </div>
        {token !== "" && error !== null && (
          <p className="wrong" role="alert">
            The server does not accept this token: {explain(error).message}
          </p>
        )}
        <label className="check">
          <input type="checkbox" checked={isKept} onChange={({ target }) => setKept(target.checked)} />
          Remember me in this browser
        </label>
        <p className="dim">
          {isKept
            ? "The token stays in this browser until you sign out. Do not use this on a shared computer."
            : "The token is forgotten when you close this tab."}
        </p>
        <div className="actions">
          <button type="submit" className="button main">
            Sign in
          </button>
        </div>
      </form>
    </main>
  );
}
