// Generated from crates/api/openapi.json, sha256:6d2ef15958a8679292d9075511d227a1f466c1afc1eb469eb23e373355157945
// By `npm run generate`; do not edit.

/** Version of the interface that these types are of. */
export const API_VERSION = "0.1.0";

/** Codes of errors, by which there is a class for each. */
export const ERROR_CODES = [
  "invalid_request",
  "unknown_language",
  "language_unavailable",
  "unauthenticated",
  "forbidden",
  "not_found",
  "method_not_allowed",
  "conflict",
  "gone",
  "body_too_large",
  "unsupported_media_type",
  "too_many_requests",
  "overloaded",
  "draining",
  "upgrade_required",
  "node_lost",
  "internal",
] as const;

/** Operations that take the header `idempotency-key`: sent twice, they make one thing. */
export const KEYED_OPERATIONS: ReadonlySet<string> = /* @__PURE__ */ new Set([
  "createExecution",
  "createBatch",
]);
