/** Makes a text field as high as its text, in browsers without `field-sizing`. */
export function growToContent(field: HTMLTextAreaElement | null, most = Number.POSITIVE_INFINITY): void {
  if (field === null || CSS.supports("field-sizing", "content")) return;
  field.style.height = "auto";
  field.style.height = `${Math.min(field.scrollHeight + 2, most)}px`;
}
