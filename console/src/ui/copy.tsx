import { useEffect, useState } from "react";
import { Icon, type IconName } from "./icon.tsx";

/** Copies a text to the clipboard, and confirms it. */
export function Copy({
  text,
  label = "Copy",
  icon = "copy",
}: {
  text: string | (() => string | Promise<string>);
  label?: string;
  icon?: IconName;
}) {
  const [done, setDone] = useState<"" | "yes" | "no">("");
  useEffect(() => {
    if (done === "") return;
    const timer = setTimeout(() => setDone(""), 1500);
    return () => clearTimeout(timer);
  }, [done]);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(typeof text === "string" ? text : await text());
      setDone("yes");
    } catch {
      setDone("no");
    }
  };
  return (
    <button type="button" className="icon-button copy" aria-label={label} title={label} onClick={() => void copy()}>
      <Icon name={done === "yes" ? "check" : icon} />
      <span role="status">{done === "yes" ? "Copied" : done === "no" ? "The browser did not allow copying" : ""}</span>
    </button>
  );
}
