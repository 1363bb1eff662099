// Messages that the conversation does not have yet.
import { explain } from "../client.ts";
import { State } from "../ui/state.tsx";
import { discard, type Outgoing, postAgain } from "./outbox.ts";

export function Outbox({
  session,
  list,
  edit,
}: {
  session: string;
  list: readonly Outgoing[];
  edit: (text: string) => void;
}) {
  return list.map(({ key, text, state, error }) => (
    <article key={key} className="message" data-role="user" data-outgoing={state} aria-label="You, not sent yet">
      <div className="content">
        <p className="plain">{text || "Files"}</p>
      </div>
      <footer>
        {state === "failed" ? (
          <>
            <State tone="bad">Not sent</State>
            <span className="dim" role="alert">
              {explain(error).message}
            </span>
            <button type="button" className="link" onClick={() => postAgain(session, key)}>
              Send again
            </button>
            <button
              type="button"
              className="link"
              onClick={() => {
                discard(session, key);
                edit(text);
              }}
            >
              Edit
            </button>
            <button type="button" className="link" onClick={() => discard(session, key)}>
              Discard
            </button>
          </>
        ) : (
          <State tone={state === "sent" ? "ok" : "run"}>{state === "sent" ? "Sent" : "Sending"}</State>
        )}
      </footer>
    </article>
  ));
}
