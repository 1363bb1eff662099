import type { FormEvent, ReactNode } from "react";

interface Props {
  /** The messages. */
  children: ReactNode;
  /** Whether a message can be sent now. */
  isReady: boolean;
  /** What the user has to know. */
  notice?: string | false;
  onSend: (text: string) => Promise<unknown>;
  /** Stops the reply, if one runs. */
  onStop: false | (() => Promise<unknown>);
}

/** The messages, and where the user writes. */
export function Page({ children, isReady, notice, onSend, onStop }: Props) {
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    void onSend(String(new FormData(event.currentTarget).get("text")));
    event.currentTarget.reset();
  };
  return (
    <main>
      <section>
        <div>{children}</div>
      </section>
      {notice && <p role="alert">{notice}</p>}
      <form onSubmit={submit}>
        <input name="text" aria-label="Message" placeholder="weather, approve, long 500" required autoComplete="off" />
        {onStop && (
          <button type="button" onClick={onStop}>
            Stop
          </button>
        )}
        <button type="submit" disabled={!isReady}>
          Send
        </button>
      </form>
    </main>
  );
}
