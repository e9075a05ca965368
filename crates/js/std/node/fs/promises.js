import { EventEmitter } from 'node:events';
import { Bytes } from 'internal/buffer';
import { bytesOf, constants, encodingOf, fill, later, native, part, span } from 'internal/fs';
import { watchChanges } from 'internal/watch';

/** An open file. */
export class FileHandle extends EventEmitter {
  #fd;

  constructor(fd) {
    super();
    this.#fd = fd;
  }

  get fd() {
    return this.#fd;
  }

  async read(buffer, offset, length, position) {
    if (buffer === undefined || (!ArrayBuffer.isView(buffer) && typeof buffer === 'object')) {
      ({ buffer = Bytes.alloc(16384), offset, length, position } = buffer ?? {});
    }
    const from = span(buffer, offset, length, position);
    const bytes = await native.later('fread', this.#fd, from.length, from.position);
    return { bytesRead: fill(buffer, from.offset, bytes), buffer };
  }

  async write(data, offset, length, position) {
    if (typeof data === 'string') {
      const bytes = Bytes.from(data, typeof length === 'string' ? length : 'utf8');
      const at = typeof offset === 'number' ? offset : null;
      return { bytesWritten: await native.later('fwrite', this.#fd, bytes, at), buffer: data };
    }
    const from = span(data, offset, length, position);
    const bytesWritten = await native.later(
      'fwrite',
      this.#fd,
      part(data, from.offset, from.length),
      from.position,
    );
    return { bytesWritten, buffer: data };
  }

  async writev(buffers, position) {
    const all = Bytes.concat(buffers.map((view) => part(view, 0, view.byteLength)));
    return { bytesWritten: await native.later('fwrite', this.#fd, all, position ?? null), buffers };
  }

  readFile(options) {
    return later('readFile', this.#fd, options);
  }

  async writeFile(data, options) {
    await native.later('fwrite', this.#fd, bytesOf(data, options), null);
  }

  appendFile(data, options) {
    return this.writeFile(data, options);
  }

  stat(options) {
    return later('fstat', this.#fd, options);
  }
  truncate(length) {
    return later('ftruncate', this.#fd, length);
  }
  sync() {
    return later('fsync', this.#fd);
  }
  datasync() {
    return later('fdatasync', this.#fd);
  }
  chmod(mode) {
    return later('fchmod', this.#fd, mode);
  }
  utimes(atime, mtime) {
    return later('futimes', this.#fd, atime, mtime);
  }

  async close() {
    if (this.#fd < 0) return;
    const fd = this.#fd;
    this.#fd = -1;
    await later('close', fd);
    this.emit('close');
  }

  async *readLines(options) {
    const text = await this.readFile({ encoding: encodingOf(options, 'utf8') });
    const lines = text.split(/\r\n|\n|\r/);
    if (lines.at(-1) === '') lines.pop();
    yield* lines;
  }

  readableWebStream() {
    const handle = this;
    return new ReadableStream({
      async pull(controller) {
        const { bytesRead, buffer } = await handle.read(Bytes.alloc(65536));
        if (bytesRead === 0) controller.close();
        else controller.enqueue(new Uint8Array(buffer.buffer, buffer.byteOffset, bytesRead));
      },
    });
  }

  [Symbol.asyncDispose]() {
    return this.close();
  }
}

const bind =
  (name) =>
  (...given) =>
    later(name, ...given);

export const access = bind('access');
export const chmod = bind('chmod');
export const chown = bind('chown');
export const copyFile = bind('copyFile');
export const cp = bind('cp');
export const link = bind('link');
export const lstat = bind('lstat');
export const mkdir = bind('mkdir');
export const mkdtemp = bind('mkdtemp');
export const readdir = bind('readdir');
export const readlink = bind('readlink');
export const realpath = bind('realpath');
export const rename = bind('rename');
export const rm = bind('rm');
export const rmdir = bind('rmdir');
export const stat = bind('stat');
export const symlink = bind('symlink');
export const truncate = bind('truncate');
export const unlink = bind('unlink');
export const utimes = bind('utimes');

export function readFile(path, options) {
  return path instanceof FileHandle ? path.readFile(options) : later('readFile', path, options);
}

async function whole(data) {
  if (
    typeof data === 'string' ||
    ArrayBuffer.isView(data) ||
    typeof data?.[Symbol.asyncIterator] !== 'function'
  ) {
    return typeof data?.[Symbol.iterator] === 'function' &&
      typeof data !== 'string' &&
      !ArrayBuffer.isView(data)
      ? Bytes.concat([...data].map((piece) => Bytes.from(piece)))
      : data;
  }
  const pieces = [];
  for await (const piece of data) pieces.push(Bytes.from(piece));
  return Bytes.concat(pieces);
}

export async function writeFile(path, data, options) {
  const all = await whole(data);
  return path instanceof FileHandle ? path.writeFile(all, options) : later('writeFile', path, all, options);
}

export async function appendFile(path, data, options) {
  return path instanceof FileHandle
    ? path.appendFile(data, options)
    : later('appendFile', path, data, options);
}

export async function open(path, flags, mode) {
  return new FileHandle(await later('open', path, flags, mode));
}

export async function opendir(path, options) {
  const { Dir } = await import('node:fs');
  return new Dir(path, await readdir(path, { ...options, withFileTypes: true }));
}

export async function* glob(pattern, options = {}) {
  const { matchesGlob } = await import('node:path');
  const cwd = options.cwd ?? process.cwd();
  const patterns = [pattern].flat();
  for (const entry of await readdir(cwd, { recursive: true })) {
    if (patterns.some((each) => matchesGlob(entry, each))) yield entry;
  }
}

export async function* watch(path, options = {}) {
  const { signal } = options;
  const waiting = [];
  let wake = () => {};
  const stop = watchChanges(path, options, (eventType, filename) => {
    waiting.push({ eventType, filename });
    wake();
  });
  try {
    for (;;) {
      signal?.throwIfAborted();
      while (waiting.length > 0) yield waiting.shift();
      await new Promise((resolve) => {
        wake = resolve;
        signal?.addEventListener('abort', resolve, { once: true });
      });
    }
  } finally {
    stop();
  }
}

export { constants };

export default {
  FileHandle,
  access,
  appendFile,
  chmod,
  chown,
  constants,
  copyFile,
  cp,
  glob,
  link,
  lstat,
  mkdir,
  mkdtemp,
  open,
  opendir,
  readFile,
  readdir,
  readlink,
  realpath,
  rename,
  rm,
  rmdir,
  stat,
  symlink,
  truncate,
  unlink,
  utimes,
  watch,
  writeFile,
};
