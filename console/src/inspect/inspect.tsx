import type { Pane } from '../route.ts';

export function Inspect({ session, pane }: { session: string; pane: Pane }) {
  return <aside aria-label={pane}>{session}</aside>;
}
