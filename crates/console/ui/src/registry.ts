// Every screen, in the order of the navigation. A screen is a file of `screens/` and a line here.
import type { ScreenEntry } from './kit';

export const SCREENS: ScreenEntry[] = [
  // home
  {
    name: 'home', title: 'Home', icon: 'house', need: null, paths: ['/'], nav: 'own', keys: 'g h',
    load: () => import('./screens/home'),
  },

  // playground

  // executions

  // sessions

  // agents

  // databases

  // catalog

  // access log

  // system
];
