import { defineConfig } from "vite";

const turnwire = {
  target: process.env.TURNWIRE_URL ?? "http://127.0.0.1:4747",
  // Turnwire sees the host of the page, so it accepts the page's origin as its own, and refuses all others.
  changeOrigin: false,
  // Vite does not tell the page when Turnwire ends in the middle of a stream.
  configure: (proxy) => proxy.on("proxyRes", (answer, _, page) => answer.on("error", () => page.destroy())),
};

export default defineConfig({
  server: { proxy: { "/ag-ui": turnwire } },
});
