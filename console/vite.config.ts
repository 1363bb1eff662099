import { fileURLToPath } from "node:url";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

const client = (entry: string) => fileURLToPath(new URL(`../clients/typescript/src/${entry}.ts`, import.meta.url));

const SERVER = process.env["TURNWIRE_URL"] ?? "http://127.0.0.1:4747";

/**
 * What the first picture needs is in the page itself: `src/first-paint.ts` as a plain script (a module would run too late), then
 * the styles. The server allows them by their hashes. The app is fetched meanwhile, and begun by that script after the first frame.
 */
function firstPaint(): Plugin {
  const id = fileURLToPath(new URL("src/first-paint.ts", import.meta.url));
  let isBuild = false;
  return {
    name: "first-paint",
    configResolved({ command }) {
      isBuild = command === "build";
    },
    buildStart() {
      if (isBuild) this.emitFile({ type: "chunk", id, name: "first-paint" });
    },
    transformIndexHtml: {
      order: "post",
      handler(html, { bundle = {} }) {
        const early = Object.values(bundle).find((file) => file.type === "chunk" && file.facadeModuleId === id);
        if (early?.type !== "chunk")
          return html.replace("</title>", '</title><script type="module" src="./src/first-paint.ts"></script>');
        delete bundle[early.fileName];
        const styles = [...html.matchAll(/<link rel="stylesheet"[^>]* href="\.\/([^"]+)">/g)].map(
          ([link, path = ""]) => {
            const file = bundle[path];
            delete bundle[path];
            // Parts that load later must not ask for it.
            for (const part of Object.values(bundle))
              if (part.type === "chunk") part.viteMetadata?.importedCss.delete(path);
            html = html.replace(link, "");
            return file?.type === "asset" ? `<style>${String(file.source).trim()}</style>` : link;
          },
        );
        // A function, because `$` in a replacement has a meaning.
        return html
          .replace("</title>", () => ["</title>", `<script>${early.code.trim()}</script>`, ...styles].join("\n    "))
          .replace(
            /<script type="module" crossorigin src="([^"]+)"><\/script>/,
            '<link rel="preload" as="script" fetchpriority="low" crossorigin href="$1" id="app">',
          )
          .replaceAll('rel="modulepreload"', 'rel="preload" as="script" fetchpriority="low"')
          .replaceAll(/\n\s*(?=\n)/g, "");
      },
    },
  };
}

export default defineConfig({
  // Below any path: what is loaded is named relative to the page.
  base: "./",
  plugins: [react(), firstPaint()],
  resolve: {
    alias: [
      { find: /^turnwire\/message$/, replacement: client("message") },
      { find: /^turnwire\/react$/, replacement: client("react") },
      // Not `index`, which has everything: with it, Rolldown splits what the first page loads into more files.
      { find: /^turnwire$/, replacement: client("client") },
    ],
    dedupe: ["react", "react-dom"],
  },
  build: {
    target: "es2022",
    // The binary holds what is built: no map, no image inside a style sheet (the content security policy).
    sourcemap: false,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  // For the page as it is written: a server that takes the page's origin for its own.
  server: {
    proxy: Object.fromEntries(
      ["/v1", "/healthz", "/openapi.json"].map((path) => [
        path,
        { target: SERVER, ws: true, changeOrigin: true, headers: { origin: SERVER } },
      ]),
    ),
  },
});
