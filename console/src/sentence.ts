// Texts of the server begin with a small letter, those of the console with a capital one.

/** With a capital letter at the beginning, unless that is a name such as `api_key_env`. */
export function sentence(text: string): string {
  return /^\p{Ll}+(?=[\s,;:.!?’']|$)/u.test(text) ? text.charAt(0).toUpperCase() + text.slice(1) : text;
}
