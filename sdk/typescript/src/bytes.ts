// Bytes, text and Base64 without a runtime's own helpers.

/** Content of a file or archive that is sent. A stream is sent once and cannot be tried again. */
export type FileContent = string | Uint8Array | ArrayBuffer | Blob | ReadableStream<Uint8Array>;

/** Returns the bytes of Base64 text. */
export function fromBase64(text: string): Uint8Array {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let index = 0; index < binary.length; index += 1) bytes[index] = binary.charCodeAt(index);
  return bytes;
}

/** Characters that are made of bytes in one step: arguments of a call are limited. */
const CHUNK = 0x8000;

/** Returns Base64 of bytes. */
export function toBase64(bytes: Uint8Array): string {
  let binary = "";
  for (let start = 0; start < bytes.length; start += CHUNK) {
    binary += String.fromCharCode(...bytes.subarray(start, start + CHUNK));
  }
  return btoa(binary);
}

/** Chunks of bytes up to a limit, which are put together when they are asked for. */
export class ByteBuffer {
  readonly #chunks: Uint8Array[] = [];
  readonly #bytesMax: number;
  #length = 0;
  /** Whether bytes were left out. */
  isCut = false;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  /** Keeps the bytes, or those of them that fit. */
  push(bytes: Uint8Array): void {
    const kept = bytes.subarray(0, this.#bytesMax - this.#length);
    this.isCut ||= kept.length < bytes.length;
    this.#length += kept.length;
    this.#chunks.push(kept);
  }

  /** All that was kept. */
  bytes(): Uint8Array {
    const all = new Uint8Array(this.#length);
    let at = 0;
    for (const chunk of this.#chunks) {
      all.set(chunk, at);
      at += chunk.length;
    }
    return all;
  }

  /** The same as text; what is not UTF-8 is replaced. */
  text(): string {
    return new TextDecoder().decode(this.bytes());
  }
}

/** Returns SHA-256 of bytes in hexadecimal. */
export async function sha256(bytes: Uint8Array): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>);
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
