import { expect, test } from "vitest";
import { sentence } from "./sentence.ts";

test.each([
  ["the model broke off; ask again", "The model broke off; ask again"],
  ["failed", "Failed"],
  ["don’t", "Don’t"],
  ["api_key_env is not set", "api_key_env is not set"],
  ["gpt-4o is not known", "gpt-4o is not known"],
  ["/v1/sessions is gone", "/v1/sessions is gone"],
  ["A sentence", "A sentence"],
  ["", ""],
])("%j begins as %j", (text, shown) => expect(sentence(text)).toBe(shown));
