// What a screen is, for the registry and for screens.
import type { ComponentType } from 'preact';
import type { IconName } from './basics';
import type { PaletteEntry } from './palette';
import type { Need } from './who';

/** Parts of the path that the screen's pattern names. */
export interface ScreenProps { params: Record<string, string> }

/** A file of `screens/`. */
export interface ScreenModule { default: ComponentType<ScreenProps> }

/** A line of the registry. */
export interface ScreenEntry {
  name: string;
  title: string;
  icon: IconName;
  /** What the token needs; the entry is hidden without it. */
  need: Need;
  /** Patterns of paths, the one of the navigation first: `/executions`, `/executions/:id`. */
  paths: string[];
  /** Where it is in the navigation: of its own, below another, or nowhere. */
  nav: 'own' | { below: string } | null;
  /** Keys that lead there: `g e`. */
  keys?: string;
  load: () => Promise<ScreenModule>;
  /** Ids that lead to one of its pages: their prefix, and the page. */
  ids?: { prefix: string; group: string; to: (id: string) => string }[];
  /** Entries of the palette that are there on every page. */
  actions?: PaletteEntry[];
}
