import type { Msg } from 'turnwire/message';

/** The messages of a session as they stood at an event; `null` until they are there. */
export function useMessagesAt(_session: string, _at: number): Msg[] | null {
  return null;
}
