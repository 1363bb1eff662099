import { type ReactNode, useEffect, useRef } from "react";
import { Icon } from "./icon.tsx";

/** A modal dialog. The browser traps the focus in it, and restores it. */
export function Dialog({
  title,
  onClose,
  isLarge = false,
  children,
}: {
  title: string;
  onClose: () => void;
  /** As wide as the page. */
  isLarge?: boolean;
  children: ReactNode;
}) {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = ref.current;
    if (dialog && !dialog.open) dialog.showModal();
    return () => dialog?.close();
  }, []);
  return (
    <dialog
      ref={ref}
      aria-label={title}
      className="dialog"
      data-large={isLarge}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => event.target === ref.current && onClose()}
    >
      <div className="dialog-in">
        <div className="dialog-head">
          <h2>{title}</h2>
          <button type="button" className="icon-button" aria-label="Close" onClick={onClose}>
            <Icon name="close" />
          </button>
        </div>
        {children}
      </div>
    </dialog>
  );
}
