// Files: what `node:fs` and `node:fs/promises` share.

import native from 'native/fs';
import { Bytes } from 'internal/buffer';
import { fileURLToPath } from 'node:url';
import { checkFunction, coded, outOfRange, wrongType } from 'internal/errors';

export const constants = {
  F_OK: 0,
  X_OK: 1,
  W_OK: 2,
  R_OK: 4,
  COPYFILE_EXCL: 1,
  COPYFILE_FICLONE: 2,
  COPYFILE_FICLONE_FORCE: 4,
  O_RDONLY: 0,
  O_WRONLY: 1,
  O_RDWR: 2,
  O_CREAT: 64,
  O_EXCL: 128,
  O_TRUNC: 512,
  O_APPEND: 1024,
  O_SYNC: 1052672,
  S_IFMT: 61440,
  S_IFREG: 32768,
  S_IFDIR: 16384,
  S_IFCHR: 8192,
  S_IFBLK: 24576,
  S_IFIFO: 4096,
  S_IFLNK: 40960,
  S_IFSOCK: 49152,
  S_IRWXU: 448,
  S_IRUSR: 256,
  S_IWUSR: 128,
  S_IXUSR: 64,
  S_IRWXG: 56,
  S_IRWXO: 7,
  UV_FS_SYMLINK_DIR: 1,
};

export function pathOf(path, name = 'path') {
  if (typeof path === 'string') {
    if (path.includes('\u0000')) {
      throw coded(
        TypeError,
        'ERR_INVALID_ARG_VALUE',
        `The argument '${name}' must be a string without null bytes. Received '${path.replaceAll('\u0000', '\\x00')}'`,
      );
    }
    return path;
  }
  if (path instanceof URL) return fileURLToPath(path);
  if (path instanceof Uint8Array) return Bytes.from(path).toString();
  throw wrongType(name, 'of type string or an instance of Buffer or URL', path);
}

export function encodingOf(options, fallback) {
  const encoding = typeof options === 'string' ? options : options?.encoding;
  if (encoding === undefined || encoding === null) return fallback;
  if (encoding !== 'buffer' && !Bytes.isEncoding(encoding)) {
    throw coded(
      TypeError,
      'ERR_INVALID_ARG_VALUE',
      `The argument 'encoding' is invalid encoding. Received '${encoding}'`,
    );
  }
  return encoding;
}

function decoded(bytes, encoding) {
  const buffer = Bytes.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return encoding && encoding !== 'buffer' ? buffer.toString(encoding) : buffer;
}

export function bytesOf(data, options) {
  if (typeof data === 'string') return Bytes.from(data, encodingOf(options, 'utf8'));
  if (ArrayBuffer.isView(data)) return data;
  throw wrongType('data', 'of type string or an instance of Buffer, TypedArray, or DataView', data);
}

function modeOf(mode, fallback) {
  if (mode === undefined || mode === null) return fallback;
  const number = typeof mode === 'string' ? parseInt(mode, 8) : mode;
  if (!Number.isInteger(number)) throw wrongType('mode', 'a number or an octal string', mode);
  return number & 0o7777;
}

function flagsOf(flags) {
  if (flags === undefined || flags === null) return 'r';
  if (typeof flags === 'string') return flags;
  const write = flags & 3;
  const start =
    flags & constants.O_APPEND
      ? 'a'
      : flags & constants.O_TRUNC || (write && flags & constants.O_CREAT)
        ? 'w'
        : 'r';
  const both = write === constants.O_RDWR || (start === 'r' && write);
  return `${start}${flags & constants.O_EXCL ? 'x' : ''}${both ? '+' : ''}`;
}

function fdOf(fd) {
  if (typeof fd !== 'number') throw wrongType('fd', 'of type number', fd);
  return fd;
}

const milliseconds = (time) => {
  const moment = time instanceof Date ? time.getTime() : Number(time) * 1000;
  if (Number.isNaN(moment)) throw wrongType('time', 'of type number or an instance of Date', time);
  return moment;
};

export class Stats {
  constructor(numbers) {
    Object.assign(this, numbers);
    for (const name of ['atime', 'mtime', 'ctime', 'birthtime']) this[name] = new Date(numbers[`${name}Ms`]);
  }

  isFile() {
    return (this.mode & constants.S_IFMT) === constants.S_IFREG;
  }
  isDirectory() {
    return (this.mode & constants.S_IFMT) === constants.S_IFDIR;
  }
  isSymbolicLink() {
    return (this.mode & constants.S_IFMT) === constants.S_IFLNK;
  }
  isFIFO() {
    return (this.mode & constants.S_IFMT) === constants.S_IFIFO;
  }
  isSocket() {
    return (this.mode & constants.S_IFMT) === constants.S_IFSOCK;
  }
  isCharacterDevice() {
    return (this.mode & constants.S_IFMT) === constants.S_IFCHR;
  }
  isBlockDevice() {
    return (this.mode & constants.S_IFMT) === constants.S_IFBLK;
  }
}

export class Dirent {
  #kind;

  constructor(name, parentPath, kind) {
    this.name = name;
    this.parentPath = parentPath;
    this.path = parentPath;
    this.#kind = kind;
  }

  isFile() {
    return this.#kind === 1;
  }
  isDirectory() {
    return this.#kind === 2;
  }
  isSymbolicLink() {
    return this.#kind === 3;
  }
  isFIFO() {
    return this.#kind === 4;
  }
  isSocket() {
    return this.#kind === 5;
  }
  isCharacterDevice() {
    return this.#kind === 6;
  }
  isBlockDevice() {
    return this.#kind === 7;
  }
}

function stats(numbers, options) {
  if (!options?.bigint) return new Stats(numbers);
  const whole = Object.fromEntries(
    Object.entries(numbers).map(([name, value]) => [name, BigInt(Math.trunc(value))]),
  );
  const big = Object.assign(new Stats(numbers), whole);
  for (const name of ['atime', 'mtime', 'ctime', 'birthtime'])
    big[`${name}Ns`] = BigInt(Math.round(numbers[`${name}Ms`] * 1e6));
  const mode = numbers.mode;
  for (const test of ['isFile', 'isDirectory', 'isSymbolicLink'])
    big[test] = () => Stats.prototype[test].call({ mode });
  return big;
}

function listing(path, options, flat) {
  const entries = [];
  for (let at = 0; at < flat.length; at += 2) {
    const name = flat[at];
    if (options?.withFileTypes) {
      const cut = name.lastIndexOf('/');
      const parent = cut < 0 ? path : `${path.replace(/\/$/, '')}/${name.slice(0, cut)}`;
      entries.push(new Dirent(name.slice(cut + 1), parent, flat[at + 1]));
    } else {
      entries.push(encodingOf(options, 'utf8') === 'buffer' ? Bytes.from(name) : name);
    }
  }
  return entries;
}

const same = (value) => value;

/**
 * Every operation once: what it hands to the native side, and what becomes of the answer. From a row come the
 * function that answers at once, the one that answers a promise, and the one that calls back.
 */
export const operations = {
  access: (path, mode = 0) => [['access', pathOf(path), mode], () => undefined],
  appendFile: (path, data, options) => writing(path, data, options, 'a'),
  chmod: (path, mode) => [['chmod', pathOf(path), modeOf(mode)], same],
  chown: (path, uid, gid) => [['chown', pathOf(path), uid, gid], same],
  close: (fd) => [['fclose', fdOf(fd)], same],
  copyFile: (from, to, mode = 0) => [
    ['copyFile', pathOf(from, 'src'), pathOf(to, 'dest'), !!(mode & 1)],
    same,
  ],
  cp: (from, to, options) => [
    ['cp', pathOf(from, 'src'), pathOf(to, 'dest'), !!options?.recursive, options?.force === false],
    same,
  ],
  fchmod: (fd, mode) => [['fchmod', fdOf(fd), modeOf(mode)], same],
  fdatasync: (fd) => [['fdatasync', fdOf(fd)], same],
  fstat: (fd, options) => [['fstat', fdOf(fd)], (found) => stats(found, options)],
  fsync: (fd) => [['fsync', fdOf(fd)], same],
  ftruncate: (fd, length = 0) => [['ftruncate', fdOf(fd), length ?? 0], same],
  futimes: (fd, atime, mtime) => [['futimes', fdOf(fd), milliseconds(atime), milliseconds(mtime)], same],
  link: (from, to) => [['link', pathOf(from, 'existingPath'), pathOf(to, 'newPath')], same],
  lstat: (path, options) => [['lstat', pathOf(path)], (found) => stats(found, options)],
  mkdir: (path, options) => {
    const { recursive = false, mode } =
      typeof options === 'object' && options !== null ? options : { mode: options };
    return [['mkdir', pathOf(path), !!recursive, modeOf(mode, 0o777)], same];
  },
  mkdtemp: (prefix) => [['mkdtemp', pathOf(prefix, 'prefix')], same],
  open: (path, flags, mode) => [['open', pathOf(path), flagsOf(flags), modeOf(mode, 0o666)], same],
  readFile: (path, options) => {
    const encoding = encodingOf(options, null);
    const asked = typeof path === 'number' ? ['freadFile', path] : ['readFile', pathOf(path)];
    return [asked, (bytes) => decoded(bytes, encoding)];
  },
  readdir: (path, options) => {
    const from = pathOf(path);
    return [['readdir', from, !!options?.recursive], (found) => listing(from, options, found)];
  },
  readlink: (path, options) => [
    ['readlink', pathOf(path)],
    (to) => (encodingOf(options) === 'buffer' ? Bytes.from(to) : to),
  ],
  realpath: (path) => [['realpath', pathOf(path)], same],
  rename: (from, to) => [['rename', pathOf(from, 'oldPath'), pathOf(to, 'newPath')], same],
  rm: (path, options) => [['rm', pathOf(path), !!options?.recursive, !!options?.force], same],
  rmdir: (path, options) => [
    options?.recursive ? ['rm', pathOf(path), true, false] : ['rmdir', pathOf(path)],
    same,
  ],
  stat: (path, options) => [['stat', pathOf(path)], (found) => stats(found, options)],
  symlink: (to, path) => [['symlink', pathOf(to, 'target'), pathOf(path)], same],
  truncate: (path, length = 0) => [['truncate', pathOf(path), length ?? 0], same],
  unlink: (path) => [['unlink', pathOf(path)], same],
  utimes: (path, atime, mtime) => [['utimes', pathOf(path), milliseconds(atime), milliseconds(mtime)], same],
  writeFile: (path, data, options) => writing(path, data, options, 'w'),
};

function writing(path, data, options, flag) {
  const bytes = bytesOf(data, options);
  if (typeof path === 'number') return [['fwrite', path, bytes, null], () => undefined];
  const settings = typeof options === 'object' && options !== null ? options : {};
  return [
    [
      'writeFile',
      pathOf(path),
      bytes,
      flagsOf(settings.flag ?? flag),
      modeOf(settings.mode, 0o666),
      !!settings.flush,
    ],
    same,
  ];
}

export function now(name, ...given) {
  const [asked, finish] = operations[name](...given);
  return finish(native.now(...asked));
}

export async function later(name, ...given) {
  const signal = given.at(-1)?.signal;
  signal?.throwIfAborted();
  const [asked, finish] = operations[name](...given);
  const answer = await native.later(...asked);
  signal?.throwIfAborted();
  return finish(answer);
}

/** Reads into a buffer: how many bytes, from where in the file (null: where it stands). */
export function span(buffer, offset, length, position) {
  if (!ArrayBuffer.isView(buffer))
    throw wrongType('buffer', 'an instance of Buffer, TypedArray, or DataView', buffer);
  if (offset !== null && typeof offset === 'object') ({ offset, length, position } = offset);
  offset ??= 0;
  length ??= buffer.byteLength - offset;
  if (offset < 0 || offset > buffer.byteLength)
    throw outOfRange('offset', `>= 0 && <= ${buffer.byteLength}`, offset);
  if (length < 0 || length > buffer.byteLength - offset) {
    throw outOfRange('length', `>= 0 && <= ${buffer.byteLength - offset}`, length);
  }
  const at = typeof position === 'bigint' ? Number(position) : position;
  return { offset, length, position: typeof at === 'number' && at >= 0 ? at : null };
}

export function fill(buffer, offset, bytes) {
  new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength).set(bytes, offset);
  return bytes.length;
}

export function part(buffer, offset, length) {
  return new Uint8Array(buffer.buffer, buffer.byteOffset + offset, length);
}

export { checkFunction, native };
