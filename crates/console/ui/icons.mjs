// Writes src/kit/icons.ts: the icons below, of lucide-static, as one path each.
//
//   node icons.mjs
import { readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const NAMES = `house play list server-cog bot database table-2 scroll-text settings search sun moon
monitor terminal copy check x chevron-down chevron-right chevron-left circle-question-mark command pause square
rotate-ccw refresh-cw trash plus ellipsis external-link download upload file folder folder-open pencil
save git-fork camera arrow-up arrow-down arrow-up-down list-filter log-out menu circle-check circle-x
triangle-alert circle-alert clock loader-circle circle-dot circle-pause ban skull cpu memory-stick activity
users key shield link plug zap wand-sparkles code share-2 keyboard message-square send box layers hard-drive
network globe eye tag git-branch info sliders-horizontal hourglass`.split(/\s+/);

const here = dirname(fileURLToPath(import.meta.url));
const nodes = JSON.parse(readFileSync(join(here, 'node_modules/lucide-static/icon-nodes.json'), 'utf8'));

const round = (number) => Number(number.toFixed(3));
const NUMBER = '-?(?:\\d*\\.\\d+|\\d+)';
const shape = {
  // Behind another path a first `m` would be relative to its end, so it becomes `M`; the pairs that
  // follow it are lines and stay relative.
  // Behind another path a first `m` would be relative to its end, so it becomes `M`; the pairs that
  // follow it are lines and stay relative.
  path: ({ d }) => d.replace(new RegExp(`^m\\s*(${NUMBER})[\\s,]*(${NUMBER})[\\s,]*(?=[-.\\d])`), 'M$1 $2l').replace(/^m/, 'M'),
  line: ({ x1, y1, x2, y2 }) => `M${x1} ${y1}L${x2} ${y2}`,
  polyline: ({ points }) => `M${points.trim().replace(/\s+/g, ' ')}`,
  polygon: ({ points }) => `M${points.trim().replace(/\s+/g, ' ')}Z`,
  circle: ({ cx, cy, r }) => ellipse(+cx, +cy, +r, +r),
  ellipse: ({ cx, cy, rx, ry }) => ellipse(+cx, +cy, +rx, +ry),
  rect: ({ x = 0, y = 0, width, height, rx, ry }) => {
    const [left, top, w, h] = [+x, +y, +width, +height];
    const r = +(rx ?? ry ?? 0);
    if (r === 0) return `M${left} ${top}h${w}v${h}h${-w}Z`;
    const arc = (dx, dy) => `a${r} ${r} 0 0 1 ${dx} ${dy}`;
    return `M${left + r} ${top}h${round(w - 2 * r)}${arc(r, r)}v${round(h - 2 * r)}${arc(-r, r)}`
      + `h${round(2 * r - w)}${arc(-r, -r)}v${round(2 * r - h)}${arc(r, -r)}Z`;
  },
};

function ellipse(cx, cy, rx, ry) {
  return `M${round(cx - rx)} ${cy}a${rx} ${ry} 0 1 0 ${2 * rx} 0a${rx} ${ry} 0 1 0 ${-2 * rx} 0Z`;
}

const lines = NAMES.sort().map((name) => {
  if (!nodes[name]) throw new Error(`no icon is called ${name}`);
  const path = nodes[name].map(([tag, attributes]) => shape[tag](attributes)).join('');
  return `  '${name}': '${path}',\n`;
});
writeFileSync(join(here, 'src/kit/icons.ts'), `// Written by icons.mjs from lucide-static (ISC); licences/ has its licence.
export const ICONS = {
${lines.join('')}} as const;

export type IconName = keyof typeof ICONS;
`);
