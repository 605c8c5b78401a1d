// Light, dark, or as the system says.
import { signal } from '@preact/signals';

const KEY = 'cove.theme';

export type Theme = 'light' | 'dark' | null;

function stored(): Theme {
  const value = document.documentElement.dataset.theme;
  return value === 'light' || value === 'dark' ? value : null;
}

export const theme = signal<Theme>(stored());

// Charts and terminals have colours of their own and take note of this event.
const changed = () => { document.dispatchEvent(new Event('cove-theme')); };
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', changed);

export function setTheme(next: Theme): void {
  theme.value = next;
  if (next === null) delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    if (next === null) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, next);
  } catch {
    // Then it lasts as long as this page.
  }
  changed();
}
