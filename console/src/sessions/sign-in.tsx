import { useId, useState } from "react";
import { setToken, useToken } from "../client.ts";
import { refreshSessions } from "./store.ts";

/** The server wants a token. It is kept as long as this tab is open. */
export function SignIn({ error }: { error: Error | null }) {
  const token = useToken();
  const [text, setText] = useState("");
  const id = useId();
  return (
    <form
      className="sign-in"
      onSubmit={(event) => {
        event.preventDefault();
        setToken(text.trim());
        setText("");
        refreshSessions();
      }}
    >
      <h2>Sign in</h2>
      <p className="dim">
        This server requires a token. Create one with <code>turnwire token new</code>.
      </p>
      <div className="field">
        <label htmlFor={id}>Token</label>
        <input
          id={id}
          type="password"
          autoComplete="current-password"
          value={text}
          required
          onChange={(event) => setText(event.target.value)}
        />
      </div>
      {token !== "" && error !== null && (
        <p className="wrong" role="alert">
          {error.message}
        </p>
      )}
      <div className="actions">
        <button type="submit" className="button main">
          Sign in
        </button>
      </div>
    </form>
  );
}
