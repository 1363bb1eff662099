// The message field. Enter sends; Stop takes the place of Send.
import { type ClipboardEvent, type KeyboardEvent, memo, type ReactNode, useEffect, useRef, useState } from "react";
import type { Sendable } from "turnwire";
import { useIsMessageField } from "../message-field.ts";
import { read, write } from "../storage.ts";
import { growToContent } from "../ui/grow.ts";
import { Icon } from "../ui/icon.tsx";
import { Problem } from "../ui/state.tsx";
import { formatBytes } from "./data-block.tsx";
import type { Files } from "./files.ts";

interface Props {
  /** The key of the stored draft. */
  draft: string;
  agent: string;
  files: Files;
  isRunning: boolean;
  /** The reply waits for a decision that is made above. */
  isAsking?: boolean;
  /** Why writing is disabled. */
  closed?: string | null;
  /** Takes the message. If it cannot, the text comes back into the field. */
  send: (content: Sendable, text: string) => Promise<void> | void;
  /** A text to put into the field. */
  refill?: { text: string } | null;
  stop?: () => Promise<void>;
  /** Shown before the buttons. */
  children?: ReactNode;
}

export const Composer = memo(function Composer({
  draft,
  agent,
  files,
  isRunning,
  isAsking = false,
  closed = null,
  send,
  refill = null,
  stop,
  children,
}: Props) {
  const key = `turnwire.draft.${draft}`;
  const [text, setText] = useState(() => read(key, "tab") ?? "");
  const [error, setError] = useState<unknown>(null);
  useIsMessageField(closed === null);
  const field = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);

  useEffect(() => {
    write(key, text === "" ? null : text, "tab");
    growToContent(field.current, window.innerHeight * 0.4);
  }, [text, key]);

  const isUploading = files.list.some(({ state }) => state === "uploading");
  const ready = files.list.filter(({ state }) => state === "ready");
  const hasSomething = text.trim() !== "" || ready.length > 0;
  const canSend = hasSomething && !isUploading && closed === null;
  useEffect(() => {
    if (refill === null) return;
    setText((now) => joined(refill.text, now));
    field.current?.focus();
  }, [refill]);

  const submit = async () => {
    if (!canSend) return;
    const content: Sendable =
      ready.length === 0
        ? text
        : [
            ...(text.trim() === "" ? [] : [{ type: "text" as const, text }]),
            ...ready.map(({ file, url = "" }) => ({
              type: "data" as const,
              name: file.name,
              source: { type: "url" as const, url, media_type: file.type || "application/octet-stream" },
            })),
          ];
    setError(null);
    // At once: what is typed from now on is the next message.
    setText("");
    files.clear();
    field.current?.focus();
    try {
      await send(content, text);
    } catch (error) {
      setText((now) => joined(text, now));
      files.restore(ready);
      setError(error);
    }
  };
  const stopReply = () => {
    setError(null);
    stop?.().catch(setError);
  };

  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    void submit();
  };
  const onPaste = (event: ClipboardEvent) => {
    if (event.clipboardData.files.length === 0) return;
    event.preventDefault();
    files.add(event.clipboardData.files);
  };

  return (
    <form
      className="composer"
      aria-label="Write a message"
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
      }}
    >
      {error !== null && <Problem error={error} onClose={() => setError(null)} />}
      {files.list.length > 0 && (
        <ul className="chips" aria-label="Files">
          {files.list.map(({ key, file, state, why }) => (
            <li key={key} className="chip" data-state={state}>
              <Icon name="file" size={12} />
              <span>{file.name}</span>
              <span className="dim">
                {state === "uploading"
                  ? "Uploading"
                  : state === "failed"
                    ? `Not uploaded: ${why ?? "the server did not accept it"}`
                    : formatBytes(file.size)}
              </span>
              <button type="button" aria-label={`Remove ${file.name}`} onClick={() => files.remove(key)}>
                ×
              </button>
            </li>
          ))}
        </ul>
      )}
      <div className="composer-row">
        <textarea
          ref={field}
          id="composer"
          rows={1}
          value={text}
          autoFocus={window.matchMedia("(min-width: 900px)").matches}
          placeholder={
            closed ??
            (isAsking
              ? `${agent} waits for your decision above. Your message will be queued.`
              : isRunning
                ? `${agent} is replying. Your message will be queued.`
                : `Message ${agent}`)
          }
          aria-label={`Message ${agent}`}
          disabled={closed !== null}
          onChange={(event) => setText(event.target.value)}
          onKeyDown={onKeyDown}
          onPaste={onPaste}
        />
        <div className="composer-tools">
          {children}
          <input
            ref={picker}
            type="file"
            multiple
            hidden
            onChange={(event) => {
              files.add(event.target.files ?? []);
              event.target.value = "";
            }}
          />
          <button
            type="button"
            className="icon-button"
            aria-label="Attach files"
            title="Attach files. You can also drop or paste them."
            disabled={closed !== null}
            onClick={() => picker.current?.click()}
          >
            <Icon name="clip" />
          </button>
          <span className="grow" />
          {(!isRunning || hasSomething) && (
            <button
              type="submit"
              className="button main"
              disabled={!canSend}
              title={isRunning ? "Send after the running reply (Enter)" : "Send (Enter)"}
            >
              {isRunning ? "Queue" : "Send"} <Icon name="send" size={14} />
            </button>
          )}
          {isRunning && stop && (
            <button type="button" className="button stop" onClick={stopReply} title="Stop the reply (Esc)">
              Stop <Icon name="stop" size={14} />
            </button>
          )}
        </div>
      </div>
    </form>
  );
});

/** A text that comes back, before what was typed since. */
function joined(before: string, now: string): string {
  return now === "" ? before : `${before}\n${now}`;
}
