// The answer of a call: a promise of its document, and a door to the response it came in.

/** Document of an answer together with the response. */
export interface WithResponse<T> {
  /** The document. */
  readonly data: T;
  /** The response; its body has been read. */
  readonly response: Response;
  /** Id under which the server's log has the details. */
  readonly requestId: string | undefined;
}

/** A call under way. Awaiting it gives its document. */
export class CoveCall<T> implements Promise<T> {
  readonly [Symbol.toStringTag] = "CoveCall";
  readonly #response: Promise<Response>;
  readonly #parse: (response: Response) => T | Promise<T>;
  #document: Promise<T> | undefined;

  /** Made by the client. */
  constructor(response: Promise<Response>, parse: (response: Response) => T | Promise<T>) {
    this.#response = response;
    this.#parse = parse;
  }

  /** The response itself, of which nothing has been read. Errors are thrown as always. */
  asResponse(): Promise<Response> {
    return this.#response;
  }

  /** The document and the response that it came in. */
  async withResponse(): Promise<WithResponse<T>> {
    const [data, response] = await Promise.all([this.#parsed(), this.#response]);
    return { data, response, requestId: response.headers.get("x-request-id") ?? undefined };
  }

  /** A call whose document is made of this one's. */
  map<U>(change: (document: T) => U | Promise<U>): CoveCall<U> {
    return new CoveCall(this.#response, async (response) => change(await this.#parse(response)));
  }

  /** As that of a promise. */
  then<A = T, B = never>(
    fulfilled?: ((value: T) => A | PromiseLike<A>) | null,
    rejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.#parsed().then(fulfilled, rejected);
  }

  /** As that of a promise. */
  catch<B = never>(
    rejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<T | B> {
    return this.#parsed().catch(rejected);
  }

  /** As that of a promise. */
  finally(settled?: (() => void) | null): Promise<T> {
    return this.#parsed().finally(settled);
  }

  #parsed(): Promise<T> {
    this.#document ??= this.#response.then(this.#parse);
    return this.#document;
  }
}

/** Documents of a list, page after page: awaiting it gives the first page, looping all items. */
export class PagedCall<P, T> extends CoveCall<P> implements AsyncIterable<T> {
  readonly #pages: () => AsyncGenerator<P, void, undefined>;
  readonly #items: (page: P) => readonly T[];

  /** Made by the client. */
  constructor(
    first: CoveCall<P>,
    next: (page: P) => CoveCall<P> | undefined,
    items: (page: P) => readonly T[],
  ) {
    super(first.asResponse(), () => first);
    this.#items = items;
    this.#pages = async function* pages() {
      let page = await first;
      for (;;) {
        yield page;
        const following = next(page);
        if (following === undefined) return;
        page = await following;
      }
    };
  }

  /** One page after the other. */
  pages(): AsyncGenerator<P, void, undefined> {
    return this.#pages();
  }

  /** All items, of one page after the other. */
  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    for await (const page of this.#pages()) yield* this.#items(page);
  }

  /** All items, at most so many. */
  async all(itemsMax: number = Number.POSITIVE_INFINITY): Promise<T[]> {
    const all: T[] = [];
    if (itemsMax <= 0) return all;
    for await (const item of this) {
      all.push(item);
      if (all.length >= itemsMax) break;
    }
    return all;
  }
}
