import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const src = (name: string) => fileURLToPath(new URL(`src/${name}.ts`, import.meta.url));

export default defineConfig({
  resolve: {
    alias: [
      { find: /^turnwire$/, replacement: src("index") },
      {
        find: /^turnwire\/(message|view|react|blocks)$/,
        replacement: fileURLToPath(new URL("src/$1.ts", import.meta.url)),
      },
    ],
  },
  test: {
    include: ["test/**/*.test.{ts,tsx}"],
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
});
