// Where the console and the interface are: taken from the address of this script, so that a proxy
// may add a prefix.

/** Address of the console, with `/` at its end. */
export const consoleBase = new URL('../../', import.meta.url);

/** Path of the console without `/` at its end, such as `/console`. */
export const consolePath = consoleBase.pathname.replace(/\/$/, '');

/** Address below which `/v1` is, with `/` at its end. */
export const apiBase = new URL('../', consoleBase);

/** Nonce of this page, for style elements that libraries make. */
export const nonce = document.querySelector<HTMLScriptElement>('script[type=module]')?.nonce ?? '';

/** Address of the interface as a person types it, without `/` at its end. */
export const apiOrigin = apiBase.href.replace(/\/$/, '');
