// Parts of the console that are loaded when they are shown.
import { signal } from '@preact/signals';

/** Whether the server has another build than this page. */
export const isOutdated = signal(false);

/**
 * Loads a part. When it is not there any more, the server was upgraded behind this page, and the
 * page says so.
 */
export async function load<T>(part: () => Promise<T>): Promise<T> {
  try {
    return await part();
  } catch (error) {
    isOutdated.value = true;
    throw error;
  }
}
