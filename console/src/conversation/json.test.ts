import { describe, expect, test } from "vitest";
import { layout, pretty, summary, tokens, visibleName, wrongInput } from "./json.ts";

const LONG =
  '{"to":["a@example.com","b@example.com"],"text":"say \\"hi\\", {then} [go]: now","n":12345678901234567890,"deep":{"x":{},"y":[]}}';

describe("the input of a tool", () => {
  test("a name with letters of several alphabets says so", () => {
    expect(visibleName("execute_trade")).toBe("execute_trade");
    expect(visibleName("\u0435xecute_trade")).toBe("\u0435xecute_trade (mixed alphabets)");
    expect(visibleName("купить_акции")).toBe("купить_акции");
    expect(visibleName("天気 weather é")).toBe("天気 weather é");
  });

  test("short is one line, long has an entry a line", () => {
    expect(pretty('{"symbol":"ACME","quantity":100}')).toBe('{ "symbol": "ACME", "quantity": 100 }');
    expect(pretty("{}")).toBe("{}");
    expect(pretty(LONG)).toBe(
      [
        "{",
        '  "to": [',
        '    "a@example.com",',
        '    "b@example.com"',
        "  ],",
        '  "text": "say \\"hi\\", {then} [go]: now",',
        '  "n": 12345678901234567890,',
        '  "deep": {',
        '    "x": {},',
        '    "y": []',
        "  }",
        "}",
      ].join("\n"),
    );
  });

  test("every token stays as it was written: digits, escapes, keys that come twice", () => {
    const input = '{"n":1.10e+2,"big":12345678901234567890,"s":"\\u0041\\/","to":"me","to":"you"}';
    expect(pretty(input).replaceAll(/\s/g, "")).toBe(input);
    expect(JSON.parse(pretty(LONG))).toEqual(JSON.parse(LONG));
  });

  test("nothing hides in it", () => {
    expect(pretty('{"to":"a\u202eb\u200b"}')).toBe('{ "to": "a\\u202eb\\u200b" }');
    expect(JSON.parse(pretty('{"to":"a\u202eb"}'))).toEqual({ to: "a\u202eb" });
    const hidden = [
      "\u00ad",
      "\u061c",
      "\u200c",
      "\u2028",
      "\u2066",
      "\u2800",
      "\u3164",
      "\ufe0f",
      "\ue000",
      "\u{e0041}",
      "\u0007",
    ];
    for (const one of hidden) {
      const shown = pretty(`{"to":"a${one}b"}`);
      expect(shown, one).toMatch(/^[ -~]+$/);
      if (one !== "\u0007") expect(JSON.parse(shown)).toEqual({ to: `a${one}b` });
    }
    expect(pretty('{"to":"❤\ufe0f 👩\u200d🚀"}')).toBe('{ "to": "❤\ufe0f 👩\u200d🚀" }');
  });

  test("it can be shown wherever it is cut", () => {
    for (let at = 0; at <= LONG.length; at += 1) {
      const part = LONG.slice(0, at);
      expect(tokens(part), part).not.toBeNull();
      expect(pretty(part).replaceAll(/\s/g, "")).toBe(part.replaceAll(/\s/g, ""));
    }
  });

  test("keys are told from values", () => {
    const kinds = layout('{"a":"b"}').map(({ kind }) => kind);
    expect(kinds).toEqual(["mark", "key", "mark", "string", "mark"]);
  });

  test("what is no JSON is shown as it is", () => {
    expect(pretty('ls -la | grep "x"; # {')).toBe('ls -la | grep "x"; # {');
    expect(pretty("")).toBe("");
  });

  test("a thousand brackets are no trouble", () => {
    expect(pretty("[".repeat(5000)).length).toBeLessThan(1_000_000);
  });

  test("what a person wrote is checked", () => {
    expect(wrongInput('{"a":1}')).toBeNull();
    for (const wrong of ["", "{", "[]", "null", "1", '"x"', "{'a':1}"]) expect(wrongInput(wrong), wrong).not.toBeNull();
  });

  test("one line for a list", () => {
    expect(summary('{"a":\n1}')).toBe('{ "a": 1 }');
    expect(summary(`{"a":"${"x".repeat(500)}"}`)).toHaveLength(160);
  });
});
