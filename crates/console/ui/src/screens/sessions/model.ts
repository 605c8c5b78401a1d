// Sessions as the interface gives them.
import type { Tone } from '../../kit';

export interface Session {
  id: string;
  agent?: string | null;
  agent_version?: number | null;
  template?: string | null;
  tenant: string;
  /** RFC 3339. */
  created_at: string;
  last_active_at: string;
  last_seq: number;
  state: 'starting' | 'active' | 'paused' | 'stopped' | 'ended' | 'error';
  sandbox: 'warming' | 'warm' | 'running' | 'waiting' | 'cold';
  message?: string | null;
  metadata?: Record<string, string>;
  parent?: string | null;
  grants?: Grant[];
  limits?: Record<string, number | null>;
  options?: Record<string, unknown>;
}

/** A grant; what it has besides depends on its kind. */
export interface Grant { kind: string; tenant?: string; warehouse?: string; access?: string; [field: string]: unknown }

export interface SessionEvent {
  seq: number;
  at_ms: number;
  turn?: string | null;
  type: string;
  data: Record<string, unknown>;
}

export interface Metrics {
  at_ms: number;
  cpu_ms: number;
  memory_bytes: number;
  memory_peak_bytes: number;
  disk_bytes: number;
  disk_total_bytes: number;
  processes: number;
  oom_kills: number;
}

export interface FileEntry { path: string; kind: string; size: number; mode: number; modified_ms: number; target?: string | null }

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
  const name = grant.tenant ?? grant.warehouse;
  return name === undefined ? grant.kind : `${grant.kind}:${name}`;
}

/** Whether it can run something now. */
export function isAwake(session: Session): boolean {
  return session.state === 'active' || session.state === 'starting';
}
