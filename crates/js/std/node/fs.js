import { clearInterval, setInterval } from 'internal/timers';
import { EventEmitter } from 'node:events';
import { Bytes } from 'internal/buffer';
import { Readable, Writable } from 'node:stream';
import promises from 'node:fs/promises';
import {
  Dirent,
  Stats,
  checkFunction,
  constants,
  fill,
  later,
  native,
  now,
  operations,
  part,
  pathOf,
  span,
} from 'internal/fs';
import { watchChanges } from 'internal/watch';

const fs = { Dirent, Stats, constants, promises, ...constants };

const custom = Symbol.for('nodejs.util.promisify.custom');

/** Each operation at once, and calling back. */
for (const name in operations) {
  fs[`${name}Sync`] = (...given) => {
    const [, options] = given;
    if ((name === 'stat' || name === 'lstat') && options?.throwIfNoEntry === false) {
      try {
        return now(name, ...given);
      } catch (error) {
        if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return undefined;
        throw error;
      }
    }
    return now(name, ...given);
  };
  fs[name] = (...given) => {
    const callback = given.pop();
    checkFunction(callback, 'cb');
    const [asked, finish] = operations[name](...given);
    native
      .later(...asked)
      .then(finish)
      .then(
        (answer) => queueMicrotask(() => (answer === undefined ? callback(null) : callback(null, answer))),
        (error) => queueMicrotask(() => callback(error)),
      );
  };
  Object.defineProperty(fs[name], 'name', { value: name });
  Object.defineProperty(fs[`${name}Sync`], 'name', { value: `${name}Sync` });
}

fs.existsSync = function existsSync(path) {
  try {
    now('access', path);
    return true;
  } catch {
    return false;
  }
};

fs.exists = function exists(path, callback) {
  queueMicrotask(() => callback(fs.existsSync(path)));
};

fs.realpathSync.native = fs.realpathSync;
fs.realpath.native = fs.realpath;

fs.readSync = function readSync(fd, buffer, offset, length, position) {
  const from = span(buffer, offset, length, position);
  return fill(buffer, from.offset, native.now('fread', fd, from.length, from.position));
};

fs.read = function read(fd, ...given) {
  const callback = given.pop();
  let [buffer, offset, length, position] = given;
  if (!ArrayBuffer.isView(buffer)) ({ buffer = Bytes.alloc(16384), offset, length, position } = buffer ?? {});
  const from = span(buffer, offset, length, position);
  native
    .later('fread', fd, from.length, from.position)
    .then((bytes) => callback(null, fill(buffer, from.offset, bytes), buffer), callback);
};

function written(data, given) {
  if (typeof data === 'string') {
    const [position, encoding] = given;
    return [Bytes.from(data, typeof encoding === 'string' ? encoding : 'utf8'), position ?? null];
  }
  const from = span(data, ...given);
  return [part(data, from.offset, from.length), from.position];
}

/** Writes to the log what is meant for the plugin's standard output. */
function print(fd, data, [offset, length] = []) {
  let bytes = data;
  if (typeof data === 'string') bytes = Bytes.from(data, typeof length === 'string' ? length : undefined);
  else {
    if (offset !== null && typeof offset === 'object') ({ offset, length } = offset);
    const start = offset ?? 0;
    bytes = Bytes.from(data.buffer, data.byteOffset, data.byteLength);
    bytes = bytes.subarray(start, length == null ? undefined : start + length);
  }
  process[fd === 1 ? 'stdout' : 'stderr'].write(bytes);
  return bytes.length;
}

fs.writeSync = function writeSync(fd, data, ...given) {
  if (fd === 1 || fd === 2) return print(fd, data, given);
  return native.now('fwrite', fd, ...written(data, given));
};

fs.write = function write(fd, data, ...given) {
  const callback = given.pop();
  if (fd === 1 || fd === 2) {
    const many = print(fd, data, given);
    process.nextTick(() => callback(null, many, data));
    return;
  }
  native.later('fwrite', fd, ...written(data, given)).then((many) => callback(null, many, data), callback);
};

fs.writevSync = (fd, buffers, position) => fs.writeSync(fd, Bytes.concat(buffers), 0, undefined, position);
fs.readvSync = (fd, buffers, position) =>
  buffers.reduce(
    (sum, buffer) =>
      sum + fs.readSync(fd, buffer, 0, undefined, position === undefined ? undefined : position + sum),
    0,
  );

/** Reads or writes several buffers with the function for one, and calls back with the sum. */
const several = (one) => (fd, buffers, position, callback) => {
  if (typeof position === 'function') [position, callback] = [undefined, position];
  checkFunction(callback, 'cb');
  let sum = 0;
  const next = (at) => {
    if (at === buffers.length) {
      callback(null, sum, buffers);
      return;
    }
    const from = typeof position === 'number' ? position + sum : null;
    one(fd, buffers[at], 0, buffers[at].byteLength, from, (error, many) => {
      if (error) {
        callback(error, sum, buffers);
        return;
      }
      sum += many;
      next(many < buffers[at].byteLength ? buffers.length : at + 1);
    });
  };
  next(0);
};
fs.readv = several((...given) => fs.read(...given));
fs.writev = several((...given) => fs.write(...given));
for (const name of ['readv', 'writev']) {
  Object.defineProperty(fs[name], custom, {
    value: (...given) =>
      new Promise((resolve, reject) => {
        fs[name](...given, (error, many, buffers) =>
          error
            ? reject(error)
            : resolve({ [name === 'readv' ? 'bytesRead' : 'bytesWritten']: many, buffers }),
        );
      }),
  });
}

export class Dir {
  #entries;

  constructor(path, entries) {
    this.path = path;
    this.#entries = [...entries];
  }

  readSync() {
    return this.#entries.shift() ?? null;
  }
  async read() {
    return this.readSync();
  }
  closeSync() {}
  async close() {}
  async *[Symbol.asyncIterator]() {
    while (this.#entries.length > 0) yield this.#entries.shift();
  }
}

fs.Dir = Dir;
fs.opendirSync = (path, options) => new Dir(path, now('readdir', path, { ...options, withFileTypes: true }));
fs.opendir = (path, ...given) => {
  const callback = given.pop();
  later('readdir', path, { ...given[0], withFileTypes: true }).then(
    (found) => callback(null, new Dir(path, found)),
    callback,
  );
};

class Watcher extends EventEmitter {
  #stop;

  constructor(path, options) {
    super();
    this.#stop = watchChanges(path, options, (type, name) => this.emit('change', type, name));
    options?.signal?.addEventListener('abort', () => this.close(), { once: true });
  }

  close() {
    this.#stop();
    queueMicrotask(() => this.emit('close'));
  }
  ref() {
    return this;
  }
  unref() {
    return this;
  }
}

fs.watch = function watch(path, options, listener) {
  if (typeof options === 'function') [options, listener] = [undefined, options];
  const watcher = new Watcher(path, typeof options === 'string' ? {} : options);
  if (listener) watcher.on('change', listener);
  return watcher;
};

const polled = new Map();

fs.watchFile = function watchFile(path, options, listener) {
  if (typeof options === 'function') [options, listener] = [{}, options];
  const nothing = () =>
    new Stats(
      Object.fromEntries(
        ['dev', 'mode', 'size', 'ino', 'mtimeMs', 'atimeMs', 'ctimeMs', 'birthtimeMs'].map((name) => [
          name,
          0,
        ]),
      ),
    );
  const stat = () => fs.statSync(path, { throwIfNoEntry: false }) ?? nothing();
  let before = stat();
  const timer = setInterval(() => {
    const after = stat();
    if (after.mtimeMs !== before.mtimeMs || after.size !== before.size || after.ino !== before.ino)
      listener(after, before);
    before = after;
  }, options.interval ?? 5007);
  timer.unref();
  polled.set(pathOf(path), [...(polled.get(pathOf(path)) ?? []), { listener, timer }]);
  return timer;
};

fs.unwatchFile = function unwatchFile(path, listener) {
  const all = polled.get(pathOf(path)) ?? [];
  const gone = all.filter((each) => listener === undefined || each.listener === listener);
  for (const { timer } of gone) clearInterval(timer);
  polled.set(
    pathOf(path),
    all.filter((each) => !gone.includes(each)),
  );
};

const settingsOf = (options) => (typeof options === 'string' ? { encoding: options } : (options ?? {}));

/** The file a stream is of, opened or given; the stream tells of it. */
function opened(stream, path, { fd, flags, mode }, usual) {
  const given =
    fd === undefined || fd === null
      ? promises.open(path, flags ?? usual, mode)
      : Promise.resolve(typeof fd === 'number' ? new promises.FileHandle(fd) : fd);
  const told = given.then((handle) => {
    stream.fd = handle.fd;
    stream.emit('open', handle.fd);
    stream.emit('ready');
    return handle;
  });
  told.catch((error) => stream.destroy(error));
  return told;
}

const kHandle = Symbol('handle');
const kAt = Symbol('at');
const kEnd = Symbol('end');
const hide = (stream, name, value) => Object.defineProperty(stream, name, { value, writable: true });

function destroyStream(error, callback) {
  this[kHandle]
    .then((handle) => handle.close())
    .then(
      () => callback(error),
      () => callback(error),
    );
}

// Functions and not classes: packages call them for objects of their own.
export function ReadStream(path, options) {
  if (!(this instanceof ReadStream)) return new ReadStream(path, options);
  const settings = settingsOf(options ?? {});
  Readable.call(this, {
    highWaterMark: settings.highWaterMark ?? 65536,
    encoding: settings.encoding,
    emitClose: true,
    signal: settings.signal,
  });
  this.bytesRead = 0;
  this.path = path;
  hide(this, kAt, settings.start ?? null);
  hide(this, kEnd, settings.end ?? Infinity);
  hide(this, kHandle, opened(this, path, settings, 'r'));
}
Object.setPrototypeOf(ReadStream.prototype, Readable.prototype);
Object.setPrototypeOf(ReadStream, Readable);

ReadStream.prototype._read = async function read(size) {
  try {
    const handle = await this[kHandle];
    const left =
      this[kEnd] === Infinity ? size : Math.min(size, this[kEnd] - (this[kAt] ?? this.bytesRead) + 1);
    if (left <= 0) {
      this.push(null);
      return;
    }
    const { bytesRead, buffer } = await handle.read(Bytes.alloc(left), 0, left, this[kAt]);
    this.bytesRead += bytesRead;
    if (this[kAt] !== null) this[kAt] += bytesRead;
    this.push(bytesRead === 0 ? null : buffer.subarray(0, bytesRead));
  } catch (error) {
    this.destroy(error);
  }
};
ReadStream.prototype._destroy = destroyStream;
ReadStream.prototype.close = function close(callback) {
  if (callback) this.once('close', callback);
  this.destroy();
};

export function WriteStream(path, options) {
  if (!(this instanceof WriteStream)) return new WriteStream(path, options);
  const settings = settingsOf(options ?? {});
  Writable.call(this, {
    highWaterMark: settings.highWaterMark ?? 16384,
    defaultEncoding: settings.encoding ?? 'utf8',
    decodeStrings: true,
    emitClose: true,
    signal: settings.signal,
  });
  this.bytesWritten = 0;
  this.path = path;
  hide(this, kAt, settings.start ?? null);
  hide(this, kHandle, opened(this, path, settings, 'w'));
}
Object.setPrototypeOf(WriteStream.prototype, Writable.prototype);
Object.setPrototypeOf(WriteStream, Writable);

WriteStream.prototype._write = function write(chunk, encoding, callback) {
  this[kHandle]
    .then(async (handle) => {
      await handle.write(chunk, 0, chunk.length, this[kAt]);
      this.bytesWritten += chunk.length;
      if (this[kAt] !== null) this[kAt] += chunk.length;
    })
    .then(() => callback(), callback);
};
WriteStream.prototype._destroy = destroyStream;
WriteStream.prototype.close = function close(callback) {
  if (callback) this.once('close', callback);
  this.end();
};

fs.ReadStream = ReadStream;
fs.WriteStream = WriteStream;
fs.createReadStream = (path, options) => new ReadStream(path, options);
fs.createWriteStream = (path, options) => new WriteStream(path, options);
fs.openAsBlob = async (path) => new Blob([await promises.readFile(path)]);
fs.globSync = (pattern, options = {}) => {
  const patterns = [pattern].flat();
  return now('readdir', options.cwd ?? process.cwd(), { recursive: true }).filter((entry) =>
    patterns.some((each) => globalThis.process.getBuiltinModule('path').matchesGlob(entry, each)),
  );
};
fs.glob = (pattern, options, callback) => {
  if (typeof options === 'function') [options, callback] = [{}, options];
  checkFunction(callback, 'cb');
  queueMicrotask(() => {
    let found;
    try {
      found = fs.globSync(pattern, options);
    } catch (error) {
      callback(error);
      return;
    }
    callback(null, found);
  });
};
fs.FileReadStream = ReadStream;
fs.FileWriteStream = WriteStream;
// As in Node on Linux: packages ask whether the function exists.
fs.lchmod = undefined;

// Packages ask whether these exist.
const [fchown, fchownSync, lchown, lchownSync, lutimes, lutimesSync, statfs, statfsSync] = [];

export const {
  access,
  accessSync,
  appendFile,
  appendFileSync,
  chmod,
  chmodSync,
  chown,
  chownSync,
  close,
  closeSync,
  copyFile,
  copyFileSync,
  cp,
  cpSync,
  createReadStream,
  createWriteStream,
  exists,
  existsSync,
  fchmod,
  fchmodSync,
  fdatasync,
  fdatasyncSync,
  fstat,
  fstatSync,
  fsync,
  fsyncSync,
  ftruncate,
  ftruncateSync,
  futimes,
  futimesSync,
  glob,
  globSync,
  link,
  linkSync,
  lstat,
  lstatSync,
  mkdir,
  mkdirSync,
  mkdtemp,
  mkdtempSync,
  open,
  openAsBlob,
  openSync,
  opendir,
  opendirSync,
  read,
  readFile,
  readFileSync,
  readSync,
  readdir,
  readdirSync,
  readlink,
  readlinkSync,
  readv,
  readvSync,
  realpath,
  realpathSync,
  rename,
  renameSync,
  rm,
  rmSync,
  rmdir,
  rmdirSync,
  stat,
  statSync,
  symlink,
  symlinkSync,
  truncate,
  truncateSync,
  unlink,
  unlinkSync,
  unwatchFile,
  utimes,
  utimesSync,
  watch,
  watchFile,
  write,
  writeFile,
  writeFileSync,
  writeSync,
  writev,
  writevSync,
  F_OK,
  R_OK,
  W_OK,
  X_OK,
} = fs;
export {
  Dirent,
  ReadStream as FileReadStream,
  Stats,
  WriteStream as FileWriteStream,
  constants,
  fchown,
  fchownSync,
  lchown,
  lchownSync,
  lutimes,
  lutimesSync,
  promises,
  statfs,
  statfsSync,
};

export default fs;
