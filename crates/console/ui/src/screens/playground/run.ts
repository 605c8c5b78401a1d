// One run: submits a request, follows it, and passes input on.
import { RECONNECTS_MAX, api, messageOf, openSocket, path, reconnectWaitMs } from '../../kit';
import { chunk, type ExecutionEvent, type ExecutionRecord, type ExecutionRequest, type ExecutionResult } from '../executions/types';

export interface RunHandlers {
  onOutput(stream: 'stdout' | 'stderr', data: string | Uint8Array): void;
  /** What happens now, in words. */
  onPhase(words: string): void;
  onAccepted(id: string): void;
  onEnd(result: ExecutionResult | null, problem: string | null): void;
}

export interface Run {
  input(data: string): void;
  eof(): void;
  resize(rows: number, cols: number): void;
  signal(name: string): void;
  /** Ends the program. */
  cancel(): void;
  /** Leaves it alone, because nobody looks any more. */
  leave(): void;
}

export function start(request: ExecutionRequest, handlers: RunHandlers): Run {
  const isAttached = request.terminal !== undefined || request.interactive === true;
  let id: string | null = null;
  let socket: WebSocket | null = null;
  let after = 0;
  let isOver = false;
  let wantsCancel = false;
  let retries = 0;

  const end = (result: ExecutionResult | null, problem: string | null) => {
    if (isOver) return;
    isOver = true;
    socket?.close(1000);
    handlers.onEnd(result, problem);
  };
  const receive = (event: ExecutionEvent) => {
    after = Math.max(after, event.seq);
    switch (event.type) {
      case 'queued': handlers.onPhase('Waiting for its turn'); break;
      case 'started': handlers.onPhase('Starting'); break;
      case 'stage': {
        const test = event.test ? `, test ${event.test}` : '';
        const words: Record<string, string> = { compile: 'Compiling', run: 'Running', checker: 'Checking', interactor: 'Interacting' };
        handlers.onPhase(`${words[event.stage ?? ''] ?? 'Running'}${test}`);
        break;
      }
      case 'stdout': case 'stderr': handlers.onOutput(event.type, chunk(event)); break;
      case 'verdict': end(event.result ?? null, null); break;
      case 'ended': end(null, event.message ?? `it was ${event.state}`); break;
      default: break;
    }
  };
  const follow = () => {
    if (id === null || isOver) return;
    const opened = openSocket(`${path`/v1/executions/${id}/events`}?after=${after}`);
    socket = opened;
    opened.onopen = () => { if (wantsCancel) opened.send('{"type":"cancel"}'); };
    opened.onmessage = ({ data }) => {
      retries = 0;
      receive(JSON.parse(data as string) as ExecutionEvent);
    };
    opened.onclose = ({ reason }) => {
      if (isOver || socket !== opened) return;
      retries += 1;
      // What was typed is gone with its socket: an attached program has ended with it.
      if (isAttached || retries > RECONNECTS_MAX) {
        void lookUp(reason);
        return;
      }
      setTimeout(follow, reconnectWaitMs(retries));
    };
  };
  const lookUp = async (reason: string) => {
    try {
      const record = await api<ExecutionRecord>(path`/v1/executions/${id!}`);
      end(record.result ?? null, record.result ? null : record.message ?? (reason || 'the connection to it was lost'));
    } catch (error) {
      end(null, messageOf(error));
    }
  };
  const send = (message: unknown) => {
    if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
  };

  handlers.onPhase('Submitting');
  api<ExecutionRecord>('/v1/executions', { json: request }).then(
    (record) => {
      id = record.id;
      handlers.onAccepted(id);
      if (isOver) return;
      follow();
    },
    (error: unknown) => end(null, messageOf(error)),
  );
  return {
    input: (data) => send({ type: 'stdin', data }),
    eof: () => send({ type: 'eof' }),
    resize: (rows, cols) => send({ type: 'resize', rows, cols }),
    signal: (name) => send({ type: 'signal', signal: name }),
    cancel: () => {
      wantsCancel = true;
      send({ type: 'cancel' });
      // A socket that is full does not pass it on.
      if (id !== null) api(path`/v1/executions/${id}`, { method: 'DELETE' }).catch(() => undefined);
    },
    leave: () => {
      isOver = true;
      socket?.close(1000);
    },
  };
}
