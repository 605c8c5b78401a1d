// The first file that runs: the shell around the screens. It also exports the toolkit and what that
// is made of, because each screen is a bundle of its own (build.mjs).
import { render } from 'preact';
import { Shell } from './shell';

export * from 'preact';
export * from 'preact/hooks';
export { Fragment, jsx, jsxs } from 'preact/jsx-runtime';
export { batch, computed, effect, signal, untracked, useComputed, useSignal, useSignalEffect } from '@preact/signals';
export * from './kit';

const root = document.getElementById('app');
if (root) render(<Shell />, root);
