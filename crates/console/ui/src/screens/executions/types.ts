// Executions as the interface gives them (`crates/api/src/execution.rs`, `job.rs`).
import type { Tone } from '../../kit';

export type Verdict = 'OK' | 'RE' | 'SG' | 'TLE' | 'MLE' | 'OLE' | 'CE' | 'WA' | 'JF' | 'IE';
export type ExecutionState = 'queued' | 'running' | 'finished' | 'cancelled' | 'expired' | 'dead';

export interface Outcome {
  verdict: Verdict;
  exit_code: number | null;
  signal: string | null;
  stdout?: string;
  stderr?: string;
  stdout_base64?: string | null;
  stderr_base64?: string | null;
  truncated?: { stdout: boolean; stderr: boolean };
  limit?: 'cpu' | 'wall' | 'memory' | 'output' | null;
  message?: string | null;
  cpu_ms: number;
  wall_ms: number;
  memory_peak_bytes: number;
  processes_peak: number;
  oom_kills?: number;
  mode?: string;
}

export interface TestOutcome extends Outcome { name: string; judge?: Outcome | null }
export interface StageOutcome extends Outcome { name: string }
export interface OutputFile { name: string; content: string | null; encoding?: 'utf8' | 'base64'; error?: string | null }

export interface ExecutionResult extends Outcome {
  id: string;
  stages: StageOutcome[];
  tests?: TestOutcome[];
  files?: OutputFile[];
}

export interface TestCase { name?: string; stdin?: string; expected?: string }

export interface ExecutionRequest {
  language?: string;
  argv?: string[];
  source?: string;
  files?: { name: string; content: string; encoding?: string; executable?: boolean }[];
  args?: string[];
  stdin?: string;
  limits?: Record<string, number>;
  tests?: TestCase[];
  comparison?: { mode: string; [field: string]: unknown };
  stop_at_first_failure?: boolean;
  merge_stderr?: boolean;
  label?: string;
  fresh?: boolean;
  terminal?: { rows: number; cols: number };
  interactive?: boolean;
  [field: string]: unknown;
}

export interface ExecutionRecord {
  id: string;
  state: ExecutionState;
  language: string;
  label?: string | null;
  priority: number;
  attempts: number;
  created_at: string;
  started_at?: string | null;
  finished_at?: string | null;
  expires_at?: string | null;
  message?: string | null;
  position?: number | null;
  estimated_start_ms?: number | null;
  verdict?: Verdict | null;
  result?: ExecutionResult | null;
  request?: ExecutionRequest | null;
}

export interface ExecutionEvent {
  seq: number;
  type: 'queued' | 'started' | 'stage' | 'stdout' | 'stderr' | 'exit' | 'gap' | 'verdict' | 'ended';
  attempt?: number;
  stage?: string;
  test?: number;
  data?: string;
  data_base64?: string;
  verdict?: Verdict;
  exit_code?: number | null;
  signal?: string | null;
  mode?: string;
  cpu_ms?: number;
  wall_ms?: number;
  result?: ExecutionResult;
  state?: ExecutionState;
  message?: string | null;
  from?: number;
  to?: number;
}

export interface QueueStats {
  backend: string;
  paused: boolean;
  queued: number;
  running: number;
  finished: number;
  cancelled: number;
  expired: number;
  dead: number;
  oldest_queued_ms?: number | null;
  tenants_waiting: number;
}

export interface Language { name: string; version?: string | null; available: boolean; compiled: boolean; reason?: string | null }

export const VERDICTS: Record<Verdict, { tone: Tone; words: string }> = {
  OK: { tone: 'ok', words: 'ended well' },
  RE: { tone: 'bad', words: 'exited with an error' },
  SG: { tone: 'bad', words: 'ended by a signal' },
  TLE: { tone: 'warn', words: 'reached its time limit' },
  MLE: { tone: 'warn', words: 'reached its memory limit' },
  OLE: { tone: 'warn', words: 'wrote more than it may' },
  CE: { tone: 'bad', words: 'did not compile' },
  WA: { tone: 'bad', words: 'wrong answer' },
  JF: { tone: 'bad', words: 'the checker failed' },
  IE: { tone: 'bad', words: 'Cove failed, not the program' },
};

export const STATES: Record<ExecutionState, { tone: Tone; words: string }> = {
  queued: { tone: 'muted', words: 'waits for its turn' },
  running: { tone: 'run', words: 'runs now' },
  finished: { tone: 'muted', words: 'has a result' },
  cancelled: { tone: 'muted', words: 'was ended by its owner' },
  expired: { tone: 'warn', words: 'did not start before its deadline' },
  dead: { tone: 'bad', words: 'failed as often as it may' },
};

const DRAFT_KEY = 'cove.playground';

/** Hands a request to the playground, which takes it when it is opened. */
export function putDraft(request: ExecutionRequest): void {
  sessionStorage.setItem(DRAFT_KEY, JSON.stringify(request));
}

export function takeDraft(): ExecutionRequest | null {
  const text = sessionStorage.getItem(DRAFT_KEY);
  return text === null ? null : JSON.parse(text) as ExecutionRequest;
}

/** Returns bytes of a chunk of output. */
export function chunk(event: { data?: string; data_base64?: string }): Uint8Array | string {
  if (event.data_base64 === undefined) return event.data ?? '';
  return Uint8Array.from(atob(event.data_base64), (character) => character.charCodeAt(0));
}
