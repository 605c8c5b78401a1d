// Errors that the client throws: one class for each code of Cove's error document.

import { type ERROR_CODES } from "./contract.js";

/** Stable identifier of an error, as the server names it. */
export type ErrorCode = (typeof ERROR_CODES)[number];

/** Any error of this package. */
export class CoveError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** No answer came: the server was not reached, or the connection was lost. */
export class CoveConnectionError extends CoveError {}

/** The time of the call was up before its answer came. */
export class CoveTimeoutError extends CoveConnectionError {}

/** The server sent what is not of its protocol, or more than the client takes. */
export class CoveProtocolError extends CoveError {}

/** A build of a template failed. */
export class TemplateBuildError extends CoveError {
  /** Id of the build, by which its log is found. */
  readonly build: string;

  constructor(message: string, build: string) {
    super(message);
    this.build = build;
  }
}

/** What an error answer says. */
export interface ErrorAnswer {
  /** Status of the answer; 0 of one that came on a WebSocket. */
  readonly status: number;
  /** Stable identifier to match on; of the catalog, the type of its error. */
  readonly code: ErrorCode | (string & {});
  /** Sentence for a person. */
  readonly message: string;
  /** Path of the field that is wrong in the request. */
  readonly field: string | undefined;
  /** Whether the same request may succeed later. */
  readonly retry: boolean;
  /** Seconds after which the server asks to try again. */
  readonly retryAfterS: number | undefined;
  /** Id under which the server's log has the details. */
  readonly requestId: string | undefined;
  /** Document of the answer, as it came. */
  readonly body: unknown;
}

/** The server answered with an error. */
export class CoveStatusError extends CoveError implements ErrorAnswer {
  readonly status: number;
  readonly code: ErrorCode | (string & {});
  readonly field: string | undefined;
  readonly retry: boolean;
  readonly retryAfterS: number | undefined;
  readonly requestId: string | undefined;
  readonly body: unknown;

  constructor(answer: ErrorAnswer) {
    const at = answer.field === undefined ? "" : `${answer.field}: `;
    const id = answer.requestId === undefined ? "" : ` (request ${answer.requestId})`;
    // A refusal on a WebSocket has no status.
    const status = answer.status === 0 ? "" : `${answer.status} `;
    super(`${status}${answer.code}: ${at}${answer.message}${id}`);
    this.status = answer.status;
    this.code = answer.code;
    this.field = answer.field;
    this.retry = answer.retry;
    this.retryAfterS = answer.retryAfterS;
    this.requestId = answer.requestId;
    this.body = answer.body;
  }
}

/** `invalid_request` (400): the request is malformed; `field` says where. */
export class InvalidRequestError extends CoveStatusError {}
/** `unknown_language` (400): no such language is configured. */
export class UnknownLanguageError extends InvalidRequestError {}
/** `language_unavailable` (400): the language's tools are not installed on the server. */
export class LanguageUnavailableError extends InvalidRequestError {}
/** `unauthenticated` (401): no token, or one that is not known. */
export class UnauthenticatedError extends CoveStatusError {}
/** `forbidden` (403): this token may not do this. */
export class ForbiddenError extends CoveStatusError {}
/** `not_found` (404): no such resource, or none that this caller may know of. */
export class NotFoundError extends CoveStatusError {}
/** `method_not_allowed` (405): the resource does not support this. */
export class MethodNotAllowedError extends CoveStatusError {}
/** `conflict` (409): the resource is not in a state that allows this. */
export class ConflictError extends CoveStatusError {}
/** `gone` (410): the resource was there and will not come back. */
export class GoneError extends CoveStatusError {}
/** `body_too_large` (413): the request is larger than the server's limit. */
export class BodyTooLargeError extends CoveStatusError {}
/** `unsupported_media_type` (415): the body has the wrong content type. */
export class UnsupportedMediaTypeError extends CoveStatusError {}
/** `upgrade_required` (426): a WebSocket is needed. */
export class UpgradeRequiredError extends CoveStatusError {}
/** `too_many_requests` (429): this caller has too much waiting already. */
export class TooManyRequestsError extends CoveStatusError {}
/** A failure of the server: any status of 500 or above. */
export class ServerError extends CoveStatusError {}
/** `internal` (500): the server failed; its log has the details under `requestId`. */
export class InternalError extends ServerError {}
/** `node_lost` (502): a node went away; it may have done what was asked. */
export class NodeLostError extends ServerError {}
/** `overloaded` (503): there is no room at present. */
export class OverloadedError extends ServerError {}
/** `draining` (503): the server is shutting down. */
export class DrainingError extends ServerError {}

type StatusErrorClass = new (answer: ErrorAnswer) => CoveStatusError;

/** The compiler refuses this where a code of the contract is missing. */
const BY_CODE: Readonly<Record<ErrorCode, StatusErrorClass>> = {
  invalid_request: InvalidRequestError,
  unknown_language: UnknownLanguageError,
  language_unavailable: LanguageUnavailableError,
  unauthenticated: UnauthenticatedError,
  forbidden: ForbiddenError,
  not_found: NotFoundError,
  method_not_allowed: MethodNotAllowedError,
  conflict: ConflictError,
  gone: GoneError,
  body_too_large: BodyTooLargeError,
  unsupported_media_type: UnsupportedMediaTypeError,
  too_many_requests: TooManyRequestsError,
  overloaded: OverloadedError,
  draining: DrainingError,
  upgrade_required: UpgradeRequiredError,
  node_lost: NodeLostError,
  internal: InternalError,
};

/** Classes for codes of later servers and of the catalog, by the status that comes with them. */
const BY_STATUS: Readonly<Record<number, StatusErrorClass>> = {
  400: InvalidRequestError,
  401: UnauthenticatedError,
  403: ForbiddenError,
  404: NotFoundError,
  405: MethodNotAllowedError,
  409: ConflictError,
  410: GoneError,
  413: BodyTooLargeError,
  415: UnsupportedMediaTypeError,
  426: UpgradeRequiredError,
  429: TooManyRequestsError,
  502: NodeLostError,
  503: OverloadedError,
};

/** Makes the error of the class that its code, or else its status, has. */
export function statusError(answer: ErrorAnswer): CoveStatusError {
  const known = Object.hasOwn(BY_CODE, answer.code) ? BY_CODE[answer.code as ErrorCode] : undefined;
  const other = answer.status >= 500 ? ServerError : CoveStatusError;
  return new (known ?? BY_STATUS[answer.status] ?? other)(answer);
}

/** Reads the answer: Cove's error document, the catalog's, or one of OAuth. */
export function errorAnswer(response: Response, text: string): ErrorAnswer {
  let body: unknown = text;
  try {
    body = JSON.parse(text);
  } catch {
    // A proxy in between answers in words of its own.
  }
  const document = asRecord(body);
  const detail = asRecord(document["error"]);
  const code = textOf(detail["code"]) ?? textOf(detail["type"]) ?? textOf(document["error"]);
  const message = textOf(detail["message"]) ?? textOf(document["error_description"]);
  const after = Number.parseInt(response.headers.get("retry-after") ?? "", 10);
  return {
    status: response.status,
    code: code ?? `http_${response.status}`,
    message: message ?? (response.statusText || "the answer has no error document"),
    field: textOf(detail["field"]),
    retry: detail["retry"] === true,
    retryAfterS: Number.isNaN(after) ? undefined : after,
    requestId: response.headers.get("x-request-id") ?? undefined,
    body,
  };
}

function asRecord(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}

function textOf(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}
