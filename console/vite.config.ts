import react from '@vitejs/plugin-react';
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vite';

const client = (entry: string) => fileURLToPath(new URL(`../clients/typescript/src/${entry}.ts`, import.meta.url));

const SERVER = process.env['TURNWIRE_URL'] ?? 'http://127.0.0.1:4747';

export default defineConfig({
  // Below any path: what is loaded is named relative to the page.
  base: './',
  plugins: [react()],
  resolve: {
    alias: [
      { find: /^turnwire\/message$/, replacement: client('message') },
      { find: /^turnwire\/react$/, replacement: client('react') },
      { find: /^turnwire$/, replacement: client('index') },
    ],
    dedupe: ['react', 'react-dom'],
  },
  build: {
    target: 'es2022',
    // The binary holds what is built: no map, no image inside a style sheet (the content security policy).
    sourcemap: false,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  // For the page as it is written: a server that takes the page's origin for its own.
  server: { proxy: Object.fromEntries(['/v1', '/healthz', '/openapi.json'].map((path) => [path, { target: SERVER, ws: true, changeOrigin: true, headers: { origin: SERVER } }])) },
});
