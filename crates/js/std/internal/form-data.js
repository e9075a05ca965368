// `FormData`, and how it is written in a body.

import { URLSearchParams } from 'internal/url';
import { Blob, File } from 'internal/blob';
import { TextDecoder, TextEncoder } from 'internal/text';
import { randomUUID } from 'internal/random';
import { enumerable } from 'internal/members';

function entry(name, value, filename) {
  if (!(value instanceof Blob)) return [`${name}`.toWellFormed(), `${value}`.toWellFormed()];
  if (value instanceof File && filename === undefined) return [`${name}`.toWellFormed(), value];
  const file = new File([value], filename ?? value.name ?? 'blob', {
    type: value.type,
    lastModified: value.lastModified,
  });
  return [`${name}`.toWellFormed(), file];
}

export class FormData {
  #entries = [];

  append(name, value, filename) {
    this.#entries.push(entry(name, value, filename));
  }

  delete(name) {
    this.#entries = this.#entries.filter(([known]) => known !== `${name}`);
  }

  get(name) {
    return this.#entries.find(([known]) => known === `${name}`)?.[1] ?? null;
  }

  getAll(name) {
    return this.#entries.filter(([known]) => known === `${name}`).map(([, value]) => value);
  }

  has(name) {
    return this.#entries.some(([known]) => known === `${name}`);
  }

  set(name, value, filename) {
    const made = entry(name, value, filename);
    const at = this.#entries.findIndex(([known]) => known === made[0]);
    if (at < 0) {
      this.#entries.push(made);
    } else {
      this.#entries[at] = made;
      this.#entries = this.#entries.filter(([known], index) => known !== made[0] || index <= at);
    }
  }

  forEach(callback, thisArg) {
    for (const [name, value] of this) callback.call(thisArg, value, name, this);
  }

  *entries() {
    for (let at = 0; at < this.#entries.length; at += 1) yield [...this.#entries[at]];
  }

  *keys() {
    for (const [name] of this) yield name;
  }

  *values() {
    for (const [, value] of this) yield value;
  }

  [Symbol.iterator]() {
    return this.entries();
  }

  get [Symbol.toStringTag]() {
    return 'FormData';
  }
}
enumerable([FormData]);

const escape = (text) => text.replace(/\n/g, '%0A').replace(/\r/g, '%0D').replace(/"/g, '%22');

/** A form as `multipart/form-data`: the bytes, and the type that names the boundary. */
export function writeForm(form) {
  const boundary = `----formdata-${randomUUID()}`;
  const encoder = new TextEncoder();
  const pieces = [];
  for (const [name, value] of form) {
    let head = `--${boundary}\r\nContent-Disposition: form-data; name="${escape(name)}"`;
    if (typeof value === 'string') {
      pieces.push(encoder.encode(`${head}\r\n\r\n${value.replace(/\r?\n|\r/g, '\r\n')}\r\n`));
    } else {
      head += `; filename="${escape(value.name)}"\r\nContent-Type: ${value.type || 'application/octet-stream'}\r\n\r\n`;
      pieces.push(encoder.encode(head), value._bytes, encoder.encode('\r\n'));
    }
  }
  pieces.push(encoder.encode(`--${boundary}--\r\n`));
  return { blob: new Blob(pieces), type: `multipart/form-data; boundary=${boundary}` };
}

function find(bytes, wanted, from) {
  for (let at = bytes.indexOf(wanted[0], from); at >= 0; at = bytes.indexOf(wanted[0], at + 1)) {
    let same = 1;
    while (same < wanted.length && bytes[at + same] === wanted[same]) same += 1;
    if (same === wanted.length) return at;
  }
  return -1;
}

function parameter(header, name) {
  const found = new RegExp(`;\\s*${name}=(?:"((?:[^"\\\\]|\\\\.)*)"|([^;\\s]+))`, 'i').exec(header);
  const text = found?.[1] ?? found?.[2];
  return text?.replace(/%0A/gi, '\n').replace(/%0D/gi, '\r').replace(/%22/g, '"').replace(/\\"/g, '"');
}

/** The form a body holds. */
export function readForm(bytes, type) {
  const form = new FormData();
  if (/^application\/x-www-form-urlencoded/i.test(type)) {
    for (const [name, value] of new URLSearchParams(new TextDecoder().decode(bytes)))
      form.append(name, value);
    return form;
  }
  const boundary = /^multipart\/form-data/i.test(type) && parameter(type, 'boundary');
  if (!boundary) throw new TypeError('Response.formData: the content type of the body is not that of a form');
  const encoder = new TextEncoder();
  const decoder = new TextDecoder();
  const mark = encoder.encode(`--${boundary}`);
  const gap = encoder.encode('\r\n\r\n');
  let at = find(bytes, mark, 0);
  while (at >= 0) {
    const start = at + mark.length;
    // Two dashes end the form.
    if (bytes[start] === 0x2d && bytes[start + 1] === 0x2d) return form;
    const head = find(bytes, gap, start);
    const next = find(bytes, mark, start);
    if (head < 0 || next < 0 || head > next) break;
    const lines = decoder.decode(bytes.subarray(start, head)).split('\r\n');
    const headers = Object.fromEntries(
      lines
        .filter((line) => line.includes(':'))
        .map((line) => [
          line.slice(0, line.indexOf(':')).toLowerCase(),
          line.slice(line.indexOf(':') + 1).trim(),
        ]),
    );
    const disposition = headers['content-disposition'] ?? '';
    const name = parameter(disposition, 'name');
    const filename = parameter(disposition, 'filename');
    const content = bytes.slice(head + gap.length, next - 2);
    if (name === undefined) break;
    if (filename === undefined) form.append(name, decoder.decode(content));
    else form.append(name, new File([content], filename, { type: headers['content-type'] ?? 'text/plain' }));
    at = next;
  }
  throw new TypeError('Response.formData: the body is no form');
}
