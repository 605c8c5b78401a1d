// The one schedule by which lost connections are made again.

const WAITS_MS = [500, 1000, 2000, 4000, 8000];
/** The part of a wait that is left to chance, so that not all pages come at once after a restart. */
const CHANCE = 0.2;

/** Attempts in a row after which what shows one thing gives up. */
export const RECONNECTS_MAX = 6;

/** Wait before an attempt in ms; the first attempt is 1. */
export function reconnectWaitMs(attempt: number): number {
  const wait = WAITS_MS[Math.min(Math.max(attempt, 1), WAITS_MS.length) - 1]!;
  return wait * (1 - CHANCE + 2 * CHANCE * Math.random());
}
