// The form of a pending call: its whole input, and the decision.
import { useEffect, useId, useLayoutEffect, useRef, useState } from "react";
import type { Approval } from "turnwire";
import type { PermissionRule } from "turnwire/message";
import { useEscape } from "../escape.ts";
import { isWriting } from "../keys.ts";
import { growToContent } from "../ui/grow.ts";
import { Problem } from "../ui/state.tsx";
import type { Answers } from "./context.ts";
import { pretty, wrongInput } from "./json.ts";
import { useReview } from "./review.ts";
import { describeRule } from "./rule.ts";
import { TimeLeft } from "./time-left.tsx";
import { Json } from "./tool.tsx";

type Mode = "ask" | "edit" | "deny";

export function ApprovalForm({ asking, answers }: { asking: Approval; answers: Answers }) {
  const { tool_call: call } = asking;
  const [mode, setMode] = useState<Mode>("ask");
  const [input, setInput] = useState("");
  const [reason, setReason] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const id = useId();
  const wrong = mode === "edit" ? wrongInput(input) : null;
  const rules = call.suggested_rules.map((rule) => ({ rule, covers: describeRule(rule) }));

  const form = useRef<HTMLFormElement>(null);
  const field = useRef<HTMLTextAreaElement>(null);
  // Whoever decides sees the whole input, also while it is edited.
  useLayoutEffect(() => growToContent(field.current), [input, mode]);
  const actions = useRef<HTMLDivElement>(null);
  const answer = async (send: () => Promise<void>) => {
    // The form disappears; move the focus to the call.
    if (form.current?.contains(document.activeElement))
      form.current.closest<HTMLElement>(".tool")?.focus({ preventScroll: true });
    setBusy(true);
    setError(null);
    try {
      await send();
      // The events bring the outcome; until then the form stays as it is.
    } catch (error) {
      setError(error);
      setBusy(false);
    }
  };
  const isChanged = mode === "edit" && input !== pretty(call.input);
  const allow = (always: PermissionRule[]) =>
    void answer(() => answers.allow(asking, { always, ...(isChanged && { input }) }));
  const edit = () => {
    setInput(pretty(call.input));
    setMode("edit");
  };
  // The field disappears; the focus stays on the card.
  const back = () => {
    form.current?.closest<HTMLElement>(".tool")?.focus({ preventScroll: true });
    setMode("ask");
  };
  useReview(call.id);
  useEscape(mode !== "ask", back);
  useCardKeys(form, (event) => {
    if ((event.ctrlKey || event.metaKey) && mode === "ask" && !isBusy && !isWriting(event.target)) {
      if (event.key === "Enter") {
        // Whoever has not seen the end of the input is led there first; a key that is still held down allows nothing.
        if (!isInView(actions.current)) actions.current?.scrollIntoView({ block: "end" });
        else if (!event.repeat) allow([]);
      } else if (event.key === "Backspace") setMode("deny");
      else return;
      event.preventDefault();
    }
  });

  return (
    <form
      ref={form}
      className="approval"
      aria-label={`Approval for ${call.name}`}
      onSubmit={(event) => {
        event.preventDefault();
        if (mode === "deny") void answer(() => answers.deny(asking, reason));
        else if (wrong === null) allow([]);
      }}
    >
      {mode === "edit" ? (
        <div className="field">
          <label htmlFor={`${id}-input`}>Tool input (JSON)</label>
          <textarea
            ref={field}
            id={`${id}-input`}
            className="mono"
            value={input}
            spellCheck={false}
            autoFocus
            aria-invalid={wrong !== null}
            aria-describedby={`${id}-wrong`}
            onChange={(event) => setInput(event.target.value)}
          />
          <p id={`${id}-wrong`} className="wrong" role="status">
            {wrong}
          </p>
        </div>
      ) : (
        <Json text={call.input} label="Input" />
      )}
      {mode === "deny" && (
        <div className="field">
          <label htmlFor={`${id}-reason`}>Reason for the agent (optional)</label>
          <input
            id={`${id}-reason`}
            value={reason}
            autoFocus
            maxLength={1000}
            onChange={(event) => setReason(event.target.value)}
          />
        </div>
      )}
      {error !== null && <Problem error={error} />}
      <div className="actions" ref={actions}>
        {mode === "deny" ? (
          <button type="submit" className="button bad" disabled={isBusy}>
            Deny
          </button>
        ) : (
          <button type="submit" className="button main" disabled={isBusy || wrong !== null}>
            {isChanged ? "Allow with changes" : "Allow once"}
          </button>
        )}
        {mode === "ask" && (
          <button type="button" className="button" disabled={isBusy} onClick={edit}>
            Edit
          </button>
        )}
        {mode === "ask" && (
          <button type="button" className="button" disabled={isBusy} onClick={() => setMode("deny")}>
            Deny…
          </button>
        )}
        {mode !== "ask" && (
          <button type="button" className="button quiet" disabled={isBusy} onClick={back}>
            Back
          </button>
        )}
        <TimeLeft expires={asking.expires_at} />
      </div>
      {mode === "ask" &&
        rules.map(({ rule, covers }) => (
          <p key={covers} className="rules">
            <button
              type="button"
              className="button"
              disabled={isBusy}
              aria-label={covers}
              onClick={() => allow([rule])}
            >
              Always
            </button>{" "}
            {covers}, in this session
          </p>
        ))}
    </form>
  );
}

/** Whether all of an element is in view: in the box that scrolls, and in the window. */
function isInView(element: HTMLElement | null): boolean {
  const box = element?.closest(".thread")?.getBoundingClientRect();
  const here = element?.getBoundingClientRect();
  if (box === undefined || here === undefined) return false;
  return here.top >= Math.max(0, box.top) - 1 && here.bottom <= Math.min(window.innerHeight, box.bottom) + 1;
}

/** Keys that are pressed while the focus is on the card of this form, or inside it. */
function useCardKeys(form: { current: HTMLFormElement | null }, onKeyDown: (event: KeyboardEvent) => void) {
  const latest = useRef(onKeyDown);
  useEffect(() => void (latest.current = onKeyDown));
  useEffect(() => {
    const card = form.current?.closest<HTMLElement>(".tool");
    const listen = (event: KeyboardEvent) => {
      // Cards of sub-agents are inside the card of their call.
      if ((event.target as Element | null)?.closest(".tool") === card) latest.current(event);
    };
    card?.addEventListener("keydown", listen);
    return () => card?.removeEventListener("keydown", listen);
  }, [form]);
}

/** A call that a client executes; here a person may play the client. */
export function ExternalForm({ asking, answers }: { asking: Approval; answers: Answers }) {
  const [output, setOutput] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const id = useId();
  const submitResult = async (state: "success" | "error") => {
    setBusy(true);
    setError(null);
    try {
      await answers.sendResult(asking, output, state);
    } catch (error) {
      setError(error);
      setBusy(false);
    }
  };
  return (
    <form
      className="approval"
      aria-label={`Result for ${asking.tool_call.name}`}
      onSubmit={(event) => {
        event.preventDefault();
        void submitResult("success");
      }}
    >
      <div className="field">
        <label htmlFor={id}>A client executes this tool. Enter its result to continue without the client:</label>
        <textarea id={id} rows={2} value={output} onChange={(event) => setOutput(event.target.value)} />
      </div>
      {error !== null && <Problem error={error} />}
      <div className="actions">
        <button type="submit" className="button main" disabled={isBusy}>
          Send result
        </button>
        <button type="button" className="button" disabled={isBusy} onClick={() => void submitResult("error")}>
          Report failure
        </button>
      </div>
    </form>
  );
}
