// Sessions as the interface gives them, and words for what they say.
import type { Tone } from '../../kit';
import type { Grant, Session } from '../../schema';

export type { FileEntry, Grant, Session, SessionEvent, SessionMetrics as Metrics } from '../../schema';

export const STATES: Record<Session['state'], { tone: Tone; word: string }> = {
  starting: { tone: 'run', word: 'starting' },
  active: { tone: 'ok', word: 'active' },
  paused: { tone: 'warn', word: 'paused' },
  stopped: { tone: 'muted', word: 'stopped' },
  ended: { tone: 'muted', word: 'ended' },
  error: { tone: 'bad', word: 'error' },
};

export const SANDBOXES: Record<Session['sandbox'], string> = {
  warming: 'being made', warm: 'ready', running: 'working', waiting: 'waits', cold: 'none; on disk',
};

/** The name of a grant in records and routes: `postgres:shop`, `http`. */
export function labelOf(grant: Grant): string {
  const name = 'tenant' in grant ? grant.tenant : 'warehouse' in grant ? grant.warehouse : undefined;
  return name === undefined ? grant.kind : `${grant.kind}:${name}`;
}

/** Whether it can run something now. */
export function isAwake(session: Session): boolean {
  return session.state === 'active' || session.state === 'starting';
}
