// A document for React, and nothing else of a browser: `fetch` stays Node's. To be imported first.

import { Window } from "happy-dom";

const window = new Window({ url: "http://127.0.0.1/" });
Object.defineProperty(globalThis, "navigator", { value: window.navigator, configurable: true });
Object.assign(globalThis, { window, document: window.document, HTMLElement: window.HTMLElement, Node: window.Node });
