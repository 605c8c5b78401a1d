// Executions as the interface gives them, and words for what they say.
import type { Tone } from '../../kit';
import type { ExecutionEvent as AnyExecutionEvent, ExecutionRecord as PlainRecord, ExecutionRequest, ExecutionState, Verdict } from '../../schema';

export type { ExecutionRequest, ExecutionState, Language, OutputFile, QueueStats, StageResult, TestCase, TestResult, Verdict } from '../../schema';
export type { Execution as ExecutionResult, StageOutcome as Outcome } from '../../schema';

/** A record with its request, which is there when `include=request` asks for it. */
export type ExecutionRecord = PlainRecord & { request?: ExecutionRequest | null };

/** Every field that some kind of event has. */
type Fields<T> = T extends unknown ? keyof T : never;
type FieldOf<T, K> = T extends unknown ? (K extends keyof T ? T[K] : never) : never;

/** An event of any kind; fields that its kind has not are undefined. */
export type ExecutionEvent = Pick<AnyExecutionEvent, 'seq' | 'type'>
  & { [K in Exclude<Fields<AnyExecutionEvent>, 'seq' | 'type'>]?: FieldOf<AnyExecutionEvent, K> };

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
export function chunk(event: { data?: string | null; data_base64?: string | null }): Uint8Array | string {
  if (event.data_base64 === undefined || event.data_base64 === null) return event.data ?? '';
  return Uint8Array.from(atob(event.data_base64), (character) => character.charCodeAt(0));
}
