import { checkString, checkObject } from 'internal/errors';

function cwd() {
  return globalThis.process.cwd();
}

/** Takes `.` and `..` out of the segments. */
function tidy(path, above) {
  const kept = [];
  for (const part of path.split('/')) {
    if (part === '' || part === '.') continue;
    if (part !== '..') kept.push(part);
    else if (kept.length > 0 && kept.at(-1) !== '..') kept.pop();
    else if (above) kept.push('..');
  }
  return kept.join('/');
}

export const sep = '/';
export const delimiter = ':';

export function normalize(path) {
  checkString(path, 'path');
  if (path === '') return '.';
  const absolute = path.startsWith('/');
  let tidied = tidy(path, !absolute);
  if (tidied === '' && !absolute) tidied = '.';
  if (tidied !== '' && path.endsWith('/')) tidied += '/';
  return absolute ? `/${tidied}` : tidied;
}

export function join(...parts) {
  for (const part of parts) checkString(part, 'path');
  const joined = parts.filter((part) => part !== '').join('/');
  return joined === '' ? '.' : normalize(joined);
}

export function resolve(...parts) {
  let resolved = '';
  for (let at = parts.length - 1; at >= 0 && !resolved.startsWith('/'); at -= 1) {
    checkString(parts[at], `paths[${at}]`);
    if (parts[at] !== '') resolved = resolved === '' ? parts[at] : `${parts[at]}/${resolved}`;
  }
  if (!resolved.startsWith('/')) resolved = `${cwd()}/${resolved}`;
  return `/${tidy(resolved, false)}`;
}

export function isAbsolute(path) {
  checkString(path, 'path');
  return path.startsWith('/');
}

export function relative(from, to) {
  checkString(from, 'from');
  checkString(to, 'to');
  const start = resolve(from).split('/').filter(Boolean);
  const end = resolve(to).split('/').filter(Boolean);
  let shared = 0;
  while (shared < start.length && shared < end.length && start[shared] === end[shared]) shared += 1;
  return [...start.slice(shared).map(() => '..'), ...end.slice(shared)].join('/');
}

export function toNamespacedPath(path) {
  return path;
}

function withoutSlashes(path) {
  let end = path.length;
  while (end > 1 && path[end - 1] === '/') end -= 1;
  return path.slice(0, end);
}

export function dirname(path) {
  checkString(path, 'path');
  if (path === '') return '.';
  const plain = withoutSlashes(path);
  const at = plain.lastIndexOf('/');
  if (at < 0) return '.';
  if (at === 0) return '/';
  return at === 1 && plain.startsWith('//') ? '//' : plain.slice(0, at);
}

export function basename(path, suffix) {
  checkString(path, 'path');
  if (suffix !== undefined) checkString(suffix, 'suffix');
  const plain = withoutSlashes(path);
  const start = plain === '/' ? 0 : plain.lastIndexOf('/') + 1;
  const base = plain === '/' ? '' : plain.slice(start);
  if (!suffix || suffix.length > path.length) return base;
  if (suffix === path) return '';
  // As in Node: a suffix that goes on before the base leaves the slashes behind it.
  if (suffix.length > base.length && suffix.endsWith(base)) return path.slice(start);
  return base !== suffix && base.endsWith(suffix) ? base.slice(0, -suffix.length) : base;
}

export function extname(path) {
  const base = basename(path);
  const at = base.lastIndexOf('.');
  return at <= 0 || base === '..' ? '' : base.slice(at);
}

export function parse(path) {
  checkString(path, 'path');
  const root = path.startsWith('/') ? '/' : '';
  const base = basename(path);
  const plain = withoutSlashes(path);
  const at = plain.lastIndexOf('/');
  // Node takes the second dot of `/..`, and of no other path, for an extension.
  const ext = base === '..' && at === 0 ? '.' : extname(path);
  return {
    root,
    // Before the last segment, as it is written.
    dir: at > 0 ? plain.slice(0, at) : root,
    base,
    ext,
    name: ext ? base.slice(0, -ext.length) : base,
  };
}

export function format(parts) {
  checkObject(parts, 'pathObject');
  const dir = parts.dir || parts.root;
  const ext = parts.ext ? (parts.ext.startsWith('.') ? parts.ext : `.${parts.ext}`) : '';
  const base = parts.base || `${parts.name ?? ''}${ext}`;
  if (!dir) return base;
  return dir === parts.root ? `${dir}${base}` : `${dir}/${base}`;
}

export function matchesGlob(path, pattern) {
  checkString(path, 'path');
  checkString(pattern, 'pattern');
  const source = pattern.replace(/[.+^$()|\\]|\*\*\/?|\*|\?|\{[^}]*\}|\[[^\]]*\]|[{}[\]]/g, (found) => {
    if (found === '**/') return '(?:.*/)?';
    if (found === '**') return '.*';
    if (found === '*') return '[^/]*';
    if (found === '?') return '[^/]';
    if (found.startsWith('{') && found.length > 1) return `(?:${found.slice(1, -1).split(',').join('|')})`;
    if (found.startsWith('[') && found.length > 1) return found.replace(/^\[!/, '[^');
    return `\\${found}`;
  });
  return new RegExp(`^${source}$`).test(path);
}

const posix = {
  basename,
  delimiter,
  dirname,
  extname,
  format,
  isAbsolute,
  join,
  matchesGlob,
  normalize,
  parse,
  relative,
  resolve,
  sep,
  toNamespacedPath,
};
posix.posix = posix;

export { posix };
// Nothing here runs on Windows; libraries that ask for it get what they run on.
export const win32 = posix;
posix.win32 = win32;

export default posix;
