// Sign-in: by a one-time code in the fragment, or by a token that is pasted.
import { signal } from '@preact/signals';
import { useState } from 'preact/hooks';
import { Button, Command, Icon, Note, loginWithCode, loginWithToken, messageOf, signedOutBecause, token } from './kit';
import { Logo } from './shell';

const problem = signal<string | null>(null);
const isBusy = signal(false);

/** Takes the code out of the address, so that it is in no history. */
export function codeInAddress(): string | null {
  const found = /^#c=([\w.~-]+)$/.exec(location.hash);
  if (!found) return null;
  history.replaceState(null, '', location.pathname + location.search);
  return found[1]!;
}

export async function signInWithCode(code: string): Promise<void> {
  isBusy.value = true;
  problem.value = null;
  try {
    await loginWithCode(code);
  } catch (error) {
    // A tab that is signed in already stays so.
    if (token.value === null) problem.value = messageOf(error);
  }
  isBusy.value = false;
}

function isExposed(): boolean {
  return location.protocol === 'http:' && !/^(localhost|127\.[\d.]+|\[::1\])$/.test(location.hostname);
}

export function SignIn() {
  const [text, setText] = useState('');
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const given = text.trim();
    if (given === '') return;
    isBusy.value = true;
    problem.value = null;
    // A link with a code does as well as a token.
    const code = /#c=([\w.~-]+)$/.exec(given)?.[1];
    try {
      if (code) await loginWithCode(code);
      else await loginWithToken(given);
    } catch (error) {
      problem.value = messageOf(error);
    }
    isBusy.value = false;
  };
  return (
    <main class="signin" id="main">
      <div class="signin-box">
        <div class="logo"><Logo size={32} /><h1>Cove</h1></div>
        {signedOutBecause.value && <Note tone="warn">{signedOutBecause.value}</Note>}
        {isExposed() && (
          <Note tone="warn">This connection is not encrypted: whoever is between you and the server can read the token. Set up <code>[tls]</code>, or open the console through an SSH tunnel.</Note>
        )}
        <section>
          <h2>With a link</h2>
          <p class="muted">On the server, this prints a link that signs you in once:</p>
          <Command text="cove console" />
        </section>
        <section>
          <h2>With a token</h2>
          <form class="form" onSubmit={submit}>
            <div class="field">
              <label for="token">Token</label>
              <input id="token" type="password" autocomplete="off" spellcheck={false} value={text} autofocus
                aria-describedby="token-hint" onInput={(event) => setText(event.currentTarget.value)} />
              <small id="token-hint"><code>cove token</code> prints the first one. It stays in this tab and is forgotten when the tab is closed.</small>
            </div>
            {problem.value && <div class="note bad" role="alert"><Icon name="circle-alert" /><div class="wrap">{problem.value}</div></div>}
            <Button type="submit" kind="primary" isDisabled={isBusy.value || text.trim() === ''}>Sign in</Button>
          </form>
        </section>
      </div>
    </main>
  );
}
