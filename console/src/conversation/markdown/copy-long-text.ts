// Very long paragraphs are drawn in parts, each a block (see `markdown.tsx`). A copy of them has no line breaks between the parts.

/** Handles `copy`: for the moment of copying, the selected parts are inline. */
export function copyLongText(event: Pick<ClipboardEvent, "clipboardData" | "preventDefault" | "target">): void {
  const selection = window.getSelection();
  if (selection === null || selection.isCollapsed || event.clipboardData === null) return;
  // The text of a field has a selection of its own.
  if (event.target instanceof HTMLTextAreaElement || event.target instanceof HTMLInputElement) return;
  const parts = [...document.querySelectorAll<HTMLElement>(".md-part")].filter((part) =>
    selection.containsNode(part, true),
  );
  if (parts.length === 0) return;
  // By an attribute: the content security policy allows no inline style in what is cloned.
  for (const part of parts) part.dataset["copied"] = "true";
  event.clipboardData.setData("text/plain", selection.toString());
  for (const part of parts) delete part.dataset["copied"];
  const copied = document.createElement("div");
  for (let at = 0; at < selection.rangeCount; at++) copied.append(selection.getRangeAt(at).cloneContents());
  for (const control of copied.querySelectorAll("button")) control.remove();
  event.clipboardData.setData("text/html", copied.innerHTML);
  event.preventDefault();
}
