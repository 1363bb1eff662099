import { useEffect, useState } from "react";
import { hasKeys, KEYS, setHasKeys, useKeys } from "./keys.ts";
import { Dialog } from "./ui/dialog.tsx";

const SHOW_KEYS = "turnwire:keys";

export function showKeys(): void {
  window.dispatchEvent(new Event(SHOW_KEYS));
}

/** `?` lists the keys. */
export function Help() {
  const [isOpen, setOpen] = useState(false);
  const [isOn, setOn] = useState(hasKeys);
  useKeys({ "?": () => setOpen(true) });
  useEffect(() => {
    const open = () => setOpen(true);
    window.addEventListener(SHOW_KEYS, open);
    return () => window.removeEventListener(SHOW_KEYS, open);
  }, []);
  if (!isOpen) return null;
  return (
    <Dialog title="Keyboard shortcuts" onClose={() => setOpen(false)}>
      <dl className="keys-list">
        {KEYS.map(([key, does]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
        <div>
          <dt>
            <kbd>Enter</kbd>
          </dt>
          <dd>
            Send the message; with <kbd>Shift</kbd>: start a new line
          </dd>
        </div>
      </dl>
      <label className="check">
        <input
          type="checkbox"
          checked={isOn}
          onChange={({ target }) => {
            setHasKeys(target.checked);
            setOn(target.checked);
          }}
        />
        Use shortcuts of a single character
      </label>
    </Dialog>
  );
}
