// `fs.watch`: looks at the file, or the folder's entries, twice a second.

import { setInterval } from 'internal/timers';
import { now, pathOf } from 'internal/fs';

const EVERY = 500;

function look(path, recursive) {
  const seen = new Map();
  const note = (name, file) => {
    try {
      const { mtimeMs, size, ino } = now('lstat', file);
      seen.set(name, `${mtimeMs} ${size} ${ino}`);
    } catch {
      // Gone between the listing and now.
    }
  };
  try {
    if (now('stat', path).isDirectory()) {
      for (const name of now('readdir', path, { recursive })) note(name, `${path}/${name}`);
    } else {
      note('', path);
    }
  } catch {
    // Not there: nothing is seen.
  }
  return seen;
}

/** Calls `changed(eventType, filename)`; answers the function that stops it. */
export function watchChanges(given, options, changed) {
  const path = pathOf(given, 'filename');
  now('stat', path);
  const own = path.slice(path.lastIndexOf('/') + 1);
  let before = look(path, !!options?.recursive);
  const timer = setInterval(() => {
    const after = look(path, !!options?.recursive);
    for (const [name, state] of after) {
      if (before.get(name) !== state) changed(before.has(name) ? 'change' : 'rename', name || own);
    }
    for (const name of before.keys()) if (!after.has(name)) changed('rename', name || own);
    before = after;
  }, options?.interval ?? EVERY);
  timer.unref();
  return () => timer.close();
}
