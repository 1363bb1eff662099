import { type KeyboardEvent, useEffect, useLayoutEffect, useRef, useState } from "react";
import { Icon, type IconName } from "./icon.tsx";

export interface Entry {
  name: string;
  icon: IconName;
  run: () => void;
  bad?: boolean;
}

/** A menu of actions. Arrow keys move, Escape closes. */
export function Menu({ label, entries }: { label: string; entries: readonly Entry[] }) {
  const [isOpen, setOpen] = useState(false);
  const [isUp, setUp] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const list = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    if (isOpen && button.current && list.current) setUp(opensUp(button.current, list.current));
  }, [isOpen]);
  useEffect(() => {
    if (!isOpen) return;
    root.current?.querySelector<HTMLElement>("[role=menuitem]")?.focus();
    const away = (event: Event) => !root.current?.contains(event.target as Node) && setOpen(false);
    document.addEventListener("pointerdown", away);
    document.addEventListener("focusin", away);
    return () => {
      document.removeEventListener("pointerdown", away);
      document.removeEventListener("focusin", away);
    };
  }, [isOpen]);
  const close = () => {
    setOpen(false);
    button.current?.focus();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (!isOpen) return;
    const all = [...(root.current?.querySelectorAll<HTMLElement>("[role=menuitem]") ?? [])];
    const at = all.indexOf(document.activeElement as HTMLElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (event.key === "Escape") close();
    else if (to === undefined) return;
    else all.at(to % all.length)?.focus();
    event.preventDefault();
    event.stopPropagation();
  };
  const toggle = () => {
    setUp(false);
    setOpen(!isOpen);
  };
  return (
    <div className="menu" ref={root} onKeyDown={onKeyDown}>
      <button
        ref={button}
        type="button"
        className="icon-button"
        aria-label={label}
        title={label}
        aria-haspopup="menu"
        aria-expanded={isOpen}
        onClick={toggle}
      >
        <Icon name="more" />
      </button>
      {isOpen && (
        <div ref={list} role="menu" aria-label={label} className="menu-list" data-up={isUp}>
          {entries.map(({ name, icon, run, bad = false }) => (
            <button
              key={name}
              type="button"
              role="menuitem"
              tabIndex={-1}
              data-bad={bad}
              onClick={() => {
                close();
                run();
              }}
            >
              <Icon name={icon} /> {name}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}

/** Whether a menu fits better above its button: inside of the box that scrolls, and of the window. */
function opensUp(button: HTMLElement, list: HTMLElement): boolean {
  let [top, bottom] = [0, window.innerHeight];
  for (let box = button.parentElement; box !== null; box = box.parentElement) {
    if (getComputedStyle(box).overflowY === "visible") continue;
    const edges = box.getBoundingClientRect();
    [top, bottom] = [Math.max(top, edges.top), Math.min(bottom, edges.bottom)];
  }
  const at = button.getBoundingClientRect();
  const [above, below] = [at.top - top, bottom - at.bottom];
  return below < list.offsetHeight + 4 && above > below;
}
