// Builds ../dist from src/. The same sources make the same bytes: names are fixed, nothing has a
// date, and versions are those of package-lock.json.
//
//   node build.mjs            build
//   node build.mjs --check    build into memory and compare with ../dist
//   node build.mjs --watch    build at every change
//
// Every bundle is one file. app.js has the toolkit (src/kit) and exports it; each screen is a file
// of its own that imports the toolkit from ./app.js, so that no chunk is shared by another name.
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as esbuild from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const dist = join(here, '..', 'dist');
const source = join(here, 'src');

// What screens get from app.js instead of a copy of their own.
const SHARED = /^(preact|preact\/hooks|preact\/jsx-runtime|@preact\/signals)$/;

const screens = readdirSync(join(source, 'screens'))
  .filter((name) => name.endsWith('.tsx'))
  .sort();

function screenOf(path) {
  const name = relative(join(source, 'screens'), path).split(sep);
  return name.length === 1 ? name[0].replace(/\.tsx$/, '') : null;
}

// In a screen: the toolkit is app.js. In app.js: a screen is a file beside it.
const borders = (isApp) => ({
  name: 'borders',
  setup(build) {
    build.onResolve({ filter: /.*/ }, async (args) => {
      if (args.kind === 'entry-point' || args.pluginData === 'resolved') return undefined;
      if (!isApp && SHARED.test(args.path)) return { path: './app.js', external: true };
      if (!args.path.startsWith('.')) return undefined;
      const found = await build.resolve(args.path, {
        kind: args.kind,
        resolveDir: args.resolveDir,
        pluginData: 'resolved',
      });
      if (found.errors.length > 0) return found;
      const inside = relative(source, found.path).split(sep);
      if (!isApp && inside[0] === 'kit') return { path: './app.js', external: true };
      if (inside[0] === 'lazy') return { path: `./${inside[1].replace(/\.tsx?$/, '.js')}`, external: true };
      if (isApp && inside[0] === 'screens') {
        return { path: `./screen-${screenOf(found.path)}.js`, external: true };
      }
      return found;
    });
  },
});

// xterm.js gives cells with colours of their own a style attribute, which the policy of the page
// forbids; the same by CSSOM is allowed. A version that does it otherwise fails the build.
const xtermStyles = {
  name: 'xterm-styles',
  setup(build) {
    build.onLoad({ filter: /@xterm\/xterm\/lib\/xterm\.mjs$/ }, ({ path }) => {
      let count = 0;
      const contents = readFileSync(path, 'utf8').replace(/([\w$.]+)\.setAttribute\("style",/g, (_, element) => {
        count += 1;
        return `((to,text)=>{to.style.cssText=text})(${element},`;
      });
      if (count === 0) throw new Error('xterm.js sets no style attribute any more: look at its renderer');
      return { contents, loader: 'js' };
    });
  },
};

const common = {
  bundle: true,
  minify: true,
  write: false,
  format: 'esm',
  target: 'es2022',
  jsx: 'automatic',
  jsxImportSource: 'preact',
  charset: 'utf8',
  legalComments: 'none',
  metafile: true,
  absWorkingDir: here,
  outdir: 'out',
  entryNames: '[name]',
  define: { 'process.env.NODE_ENV': '"production"' },
  logLevel: 'warning',
};

// Builds everything; returns the files by name.
async function build() {
  const results = await Promise.all([
    esbuild.build({ ...common, entryPoints: { app: 'src/app.tsx' }, plugins: [borders(true)] }),
    ...screens.map((name) => esbuild.build({
      ...common,
      entryPoints: { [`screen-${name.replace(/\.tsx$/, '')}`]: `src/screens/${name}` },
      plugins: [borders(false)],
    })),
    ...['editor', 'terminal', 'plot'].map((name) => esbuild.build({
      ...common,
      entryPoints: { [name]: `src/lazy/${name}.ts` },
      plugins: [xtermStyles],
    })),
    esbuild.build({
      ...common, format: 'iife', entryPoints: { start: 'src/start.ts' },
      define: { ...common.define, SCREEN_NAMES: JSON.stringify(screens.map((name) => name.replace(/\.tsx$/, ''))) },
    }),
    esbuild.build({ ...common, entryPoints: { app: 'src/style/app.css' } }),
  ]);
  const files = new Map();
  const packages = new Set();
  for (const result of results) {
    for (const file of result.outputFiles) {
      const name = file.path.split(sep).pop();
      if (files.has(name)) throw new Error(`two outputs are called ${name}`);
      files.set(name, Buffer.from(file.contents));
    }
    for (const input of Object.keys(result.metafile.inputs)) {
      const found = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(input);
      if (found) packages.add(found[1]);
    }
  }
  files.set('index.html', readFileSync(join(source, 'index.html')));
  files.set('LICENSES.txt', Buffer.from(licences(packages)));
  const names = [...files.keys()].sort();
  const lines = names.map((name) => `    ("${name}", include_bytes!("${name}")),\n`);
  files.set('files.inc', Buffer.from(`&[\n${lines.join('')}]\n`));
  files.set('.sources', Buffer.from(`${sourcesHash()}\n`));
  return files;
}

// The licence texts of what was bundled, and of what was copied (licences/).
function licences(packages) {
  const texts = [];
  for (const name of [...packages].sort()) {
    const root = join(here, 'node_modules', name);
    const about = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
    const file = readdirSync(root).find((it) => /^licen[cs]e/i.test(it));
    if (!file) throw new Error(`${name} has no licence file`);
    texts.push([`${name} ${about.version} (${about.license})`, readFileSync(join(root, file), 'utf8')]);
  }
  for (const file of readdirSync(join(here, 'licences')).sort()) {
    texts.push([file.replace(/\.txt$/, ''), readFileSync(join(here, 'licences', file), 'utf8')]);
  }
  const clean = (text) => text.replace(/\r\n/g, '\n').split('\n').map((it) => it.trimEnd()).join('\n').trim();
  const head = 'Cove\'s console contains the following software.\n';
  return `${head}\n${texts.map(([name, text]) => `== ${name}\n\n${clean(text)}\n`).join('\n')}`;
}

// SHA-256 over every source file, as `xtask tidy` computes it: for each file, sorted by path, the
// path, NUL, the content with line ends of Unix, NUL.
function sourcesHash() {
  const paths = [];
  const walk = (directory) => {
    for (const entry of readdirSync(directory, { withFileTypes: true })) {
      const path = join(directory, entry.name);
      if (entry.isDirectory() && entry.name !== 'node_modules') walk(path);
      if (entry.isFile() && !/\.(md|d\.ts)$/.test(entry.name)) paths.push(path);
    }
  };
  walk(here);
  const named = paths.map((path) => [relative(here, path).split(sep).join('/'), path]);
  named.sort(([one], [other]) => (one < other ? -1 : 1));
  const hash = createHash('sha256');
  for (const [name, path] of named) {
    const text = readFileSync(path, 'utf8').replaceAll('\r\n', '\n');
    hash.update(name).update('\0').update(text).update('\0');
  }
  return hash.digest('hex');
}

function write(files) {
  mkdirSync(dist, { recursive: true });
  for (const name of readdirSync(dist)) {
    if (!files.has(name)) rmSync(join(dist, name));
  }
  for (const [name, content] of files) {
    const path = join(dist, name);
    if (!existsSync(path) || !readFileSync(path).equals(content)) writeFileSync(path, content);
  }
}

async function main(argument) {
  if (argument === '--check') {
    const files = await build();
    const present = existsSync(dist) ? readdirSync(dist) : [];
    const wrong = [
      ...[...files].filter(([name, content]) => !present.includes(name)
        || !readFileSync(join(dist, name)).equals(content)).map(([name]) => name),
      ...present.filter((name) => !files.has(name)),
    ];
    if (wrong.length > 0) {
      console.error(`dist is not what the sources make: ${wrong.join(', ')}; run \`make console\``);
      process.exitCode = 1;
    }
    return;
  }
  write(await build());
  if (argument !== '--watch') return;
  const { watch } = await import('node:fs');
  let timer;
  watch(source, { recursive: true }, () => {
    clearTimeout(timer);
    timer = setTimeout(() => build().then(write).then(
      () => console.log('built'),
      (error) => console.error(error.message),
    ), 100);
  });
  console.log('watching src');
}

await main(process.argv[2]);
