// A program in a link: deflated, in the fragment, so that no server sees it.
import type { ExecutionRequest } from '../executions/types';

/** Longest text that a link is unpacked to. */
const TEXT_MAX = 2 << 20;

async function through(bytes: Uint8Array, stream: CompressionStream | DecompressionStream): Promise<Uint8Array> {
  const reader = new Blob([bytes as BlobPart]).stream().pipeThrough(stream as ReadableWritablePair).getReader();
  const parts: Uint8Array[] = [];
  let length = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    length += value.length;
    if (length > TEXT_MAX) throw new Error('the program in the link is larger than 2 MiB');
    parts.push(value);
  }
  return new Uint8Array(await new Blob(parts as BlobPart[]).arrayBuffer());
}

export async function pack(request: ExecutionRequest): Promise<string> {
  const bytes = await through(new TextEncoder().encode(JSON.stringify(request)), new CompressionStream('deflate-raw'));
  let text = '';
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
}

export async function unpack(text: string): Promise<ExecutionRequest> {
  const plain = atob(text.replaceAll('-', '+').replaceAll('_', '/'));
  const bytes = Uint8Array.from(plain, (character) => character.charCodeAt(0));
  const unpacked = await through(bytes, new DecompressionStream('deflate-raw'));
  const request = JSON.parse(new TextDecoder().decode(unpacked)) as unknown;
  if (typeof request !== 'object' || request === null) throw new Error('the link holds no program');
  return request as ExecutionRequest;
}
