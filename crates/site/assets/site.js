// What a page can do beyond being read: the choice of the theme, `/` for the search, a button that
// copies a block of code, and a navigation that shows where the page is.
(() => {
  'use strict';

  const root = document.documentElement;
  const isDark = () => (root.dataset.theme ?? (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light')) === 'dark';

  const button = document.getElementById('theme');
  const name = () => { button.textContent = isDark() ? 'Light' : 'Dark'; };
  button.hidden = false;
  name();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', name);
  button.addEventListener('click', () => {
    root.dataset.theme = isDark() ? 'light' : 'dark';
    try {
      localStorage.setItem('cove.theme', root.dataset.theme);
    } catch {
      // Then it lasts as long as this page.
    }
    name();
  });

  const field = document.querySelector('input[type=search]');
  document.addEventListener('keydown', (event) => {
    const isTyping = /^(input|textarea|select)$/i.test(event.target.tagName);
    if (event.key !== '/' || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    field.focus();
    field.select();
  });

  // Of a block with prompts, what is typed; of any other block, all of it. A command goes on in the
  // next line behind `\`, and a here-document until its word.
  function typed(text) {
    const lines = text.replace(/\n$/, '').split('\n');
    if (!lines.some((line) => /^[$#] /.test(line))) return lines.join('\n');
    const kept = [];
    let until = null;
    let goesOn = false;
    for (const line of lines) {
      const prompt = /^[$#] /.test(line);
      if (until === null && !goesOn && !prompt) continue;
      const words = until === null && !goesOn ? line.slice(2) : line;
      kept.push(words);
      if (until !== null) {
        if (line === until) until = null;
        continue;
      }
      until = /<<\s*['"]?(\w+)['"]?/.exec(words)?.[1] ?? null;
      goesOn = words.endsWith('\\');
    }
    return kept.join('\n');
  }

  if (navigator.clipboard) {
    for (const code of document.querySelectorAll('article pre > code')) {
      const copy = document.createElement('button');
      copy.type = 'button';
      copy.className = 'copy';
      copy.textContent = 'Copy';
      copy.addEventListener('click', async () => {
        try {
          await navigator.clipboard.writeText(typed(code.textContent));
          copy.textContent = 'Copied';
        } catch {
          copy.textContent = 'Not allowed';
        }
        setTimeout(() => { copy.textContent = 'Copy'; }, 2000);
      });
      const block = document.createElement('div');
      block.className = 'code';
      code.parentElement.replaceWith(block);
      block.append(code.parentElement, copy);
    }
  }

  // Without moving the page itself.
  const pages = document.getElementById('pages');
  const current = pages?.querySelector('[aria-current]');
  if (current && pages.scrollHeight > pages.clientHeight) {
    pages.scrollTop = current.offsetTop - pages.clientHeight / 2;
  }
})();
