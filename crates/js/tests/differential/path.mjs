import path from 'node:path';
import { Random, attempt } from './lib.mjs';

const pieces = ['/', '/', '.', '..', 'a', 'b.c', '.d', 'é', ' ', './', '../', '//', 'e.', '.f.g', '...'];

export default (seed) => {
  const random = new Random(seed);
  const rows = [];
  for (let at = 0; at < 20; at += 1) {
    const one = random.text(pieces, 6);
    const other = random.text(pieces, 4);
    for (const name of ['parse', 'normalize', 'dirname', 'basename', 'extname', 'isAbsolute', 'toNamespacedPath']) {
      rows.push([`path.${name}`, one, attempt(() => path[name](one))]);
    }
    rows.push(['path.basename', [one, other], attempt(() => path.basename(one, other))]);
    rows.push(['path.join', [one, other], attempt(() => path.join(one, other))]);
    rows.push(['path.resolve', [one, other], attempt(() => path.resolve('/r', one, other))]);
    rows.push(['path.relative', [one, other], attempt(() => path.relative(`/r/${one}`, `/r/${other}`))]);
    rows.push(['path.format', one, attempt(() => path.format(path.parse(one)))]);
  }
  return rows;
};
