// What sessions and streams of HTTP/2 share: codes, errors, headers and settings.

import { Bytes } from 'internal/buffer';
import { coded } from 'internal/errors';
import { isToken } from 'internal/http1/common';

export const NO_ERROR = 0;
export const INTERNAL_ERROR = 2;
export const CANCEL = 8;
export const END_HEADERS = 4;
export const END_OF_STREAM = 1;

export const CODES = [
  'NO_ERROR',
  'PROTOCOL_ERROR',
  'INTERNAL_ERROR',
  'FLOW_CONTROL_ERROR',
  'SETTINGS_TIMEOUT',
  'STREAM_CLOSED',
  'FRAME_SIZE_ERROR',
  'REFUSED_STREAM',
  'CANCEL',
  'COMPRESSION_ERROR',
  'CONNECT_ERROR',
  'ENHANCE_YOUR_CALM',
  'INADEQUATE_SECURITY',
  'HTTP_1_1_REQUIRED',
];

const ERRORS = {
  CONNECT_AUTHORITY: [Error, () => ':authority header is required for CONNECT requests'],
  CONNECT_PATH: [Error, () => 'The :path header is forbidden for CONNECT requests'],
  CONNECT_SCHEME: [Error, () => 'The :scheme header is forbidden for CONNECT requests'],
  ERROR: [Error, (why) => why],
  GOAWAY_SESSION: [Error, () => 'New streams cannot be created after receiving a GOAWAY'],
  HEADERS_AFTER_RESPOND: [Error, () => 'Cannot specify additional headers after response initiated'],
  HEADERS_SENT: [Error, () => 'Response has already been initiated.'],
  HEADER_SINGLE_VALUE: [TypeError, (name) => `Header field "${name}" must only have a single value`],
  INVALID_CONNECTION_HEADERS: [
    TypeError,
    (name) => `HTTP/1 Connection specific headers are forbidden: "${name}"`,
  ],
  INFO_STATUS_NOT_ALLOWED: [RangeError, () => 'Informational status codes cannot be used'],
  INVALID_HEADER_VALUE: [TypeError, ([name, value]) => `Invalid value "${value}" for header "${name}"`],
  INVALID_INFO_STATUS: [RangeError, (status) => `Invalid informational status code: ${status}`],
  INVALID_PACKED_SETTINGS_LENGTH: [RangeError, () => 'Packed settings length must be a multiple of six'],
  INVALID_PSEUDOHEADER: [TypeError, (name) => `"${name}" is an invalid pseudoheader or is used incorrectly`],
  INVALID_SESSION: [Error, () => 'The session has been destroyed'],
  INVALID_STREAM: [Error, () => 'The stream has been destroyed'],
  NO_SOCKET_MANIPULATION: [
    Error,
    () => 'HTTP/2 sockets should not be directly manipulated (e.g. read and written)',
  ],
  PING_CANCEL: [Error, () => 'HTTP2 ping cancelled'],
  PING_LENGTH: [RangeError, () => 'HTTP2 ping payload must be 8 bytes'],
  PSEUDOHEADER_NOT_ALLOWED: [TypeError, () => 'Cannot set HTTP/2 pseudo-headers'],
  PUSH_DISABLED: [Error, () => 'HTTP/2 client has disabled push streams'],
  SESSION_ERROR: [Error, (code) => `Session closed with error code ${code}`],
  SETTINGS_CANCEL: [Error, () => 'HTTP2 session settings canceled'],
  SOCKET_BOUND: [Error, () => 'The socket is already bound to an Http2Session'],
  SOCKET_UNBOUND: [Error, () => 'The socket has been disconnected from the Http2Session'],
  STATUS_101: [Error, () => 'HTTP status code 101 (Switching Protocols) is forbidden in HTTP/2'],
  STATUS_INVALID: [RangeError, (status) => `Invalid status code: ${status}`],
  STREAM_CANCEL: [
    Error,
    (cause) => `The pending stream has been canceled${cause ? ` (caused by: ${cause.message})` : ''}`,
  ],
  STREAM_ERROR: [Error, (code) => `Stream closed with error code ${code}`],
  TRAILERS_ALREADY_SENT: [Error, () => 'Trailing headers have already been sent'],
  TRAILERS_NOT_READY: [
    Error,
    () => 'Trailing headers cannot be sent until after the wantTrailers event is emitted',
  ],
  UNSUPPORTED_PROTOCOL: [Error, (protocol) => `protocol "${protocol}" is unsupported.`],
};

/** The error `ERR_HTTP2_<name>`. */
export function refusal(name, given) {
  const [Class, words] = ERRORS[name];
  return coded(Class, `ERR_HTTP2_${name}`, words(given));
}

export const sensitiveHeaders = Symbol('sensitiveHeaders');

const PSEUDO = new Set([':status', ':method', ':authority', ':scheme', ':path', ':protocol']);

/** Headers whose first value counts. */
const SINGLE = new Set([
  ...PSEUDO,
  ...(
    'access-control-allow-credentials access-control-max-age access-control-request-method age authorization ' +
    'content-encoding content-language content-length content-location content-md5 content-range content-type date dnt ' +
    'etag expires from host if-match if-modified-since if-none-match if-range if-unmodified-since last-modified location ' +
    'max-forwards proxy-authorization range referer retry-after tk upgrade-insecure-requests user-agent ' +
    'x-content-type-options'
  ).split(' '),
]);

const OF_CONNECTIONS = new Set([
  'connection',
  'upgrade',
  'http2-settings',
  'keep-alive',
  'proxy-connection',
  'transfer-encoding',
]);

/** Pseudo-headers as an object, and `[name, value, is sensitive]` of the others. */
export function rowsOf(headers, isPseudoAllowed) {
  const head = {};
  const rows = [];
  const single = new Set();
  const sensitive = new Set((headers[sensitiveHeaders] ?? []).map((name) => `${name}`.toLowerCase()));
  for (const [given, value] of Object.entries(headers)) {
    if (value === undefined || given === '') continue;
    const name = given.toLowerCase();
    const values = Array.isArray(value) ? value.map(String) : [String(value)];
    if (values.length === 0) continue;
    if (SINGLE.has(name)) {
      if (values.length > 1 || single.has(name)) throw refusal('HEADER_SINGLE_VALUE', name);
      single.add(name);
    }
    if (name[0] === ':') {
      if (!isPseudoAllowed || !PSEUDO.has(name)) throw refusal('INVALID_PSEUDOHEADER', name);
      [head[name]] = values;
      continue;
    }
    if (!isToken(name))
      throw coded(TypeError, 'ERR_INVALID_HTTP_TOKEN', `Header name must be a valid HTTP token ["${given}"]`);
    if (OF_CONNECTIONS.has(name) || (name === 'te' && values.some((each) => each !== 'trailers')))
      throw refusal('INVALID_CONNECTION_HEADERS', name);
    for (const each of values) rows.push([name, each, sensitive.has(name)]);
  }
  return { head, rows };
}

/** The object of a flat list of names and values. */
export function objectOf(flat) {
  const headers = Object.create(null);
  for (let at = 0; at < flat.length; at += 2) {
    const name = flat[at];
    const value = name === ':status' ? Number(flat[at + 1]) : flat[at + 1];
    const before = headers[name];
    if (before === undefined) headers[name] = name === 'set-cookie' ? [value] : value;
    else if (name === 'set-cookie') before.push(value);
    else if (!SINGLE.has(name)) headers[name] = `${before}${name === 'cookie' ? '; ' : ', '}${value}`;
  }
  headers[sensitiveHeaders] = [];
  return headers;
}

const LARGEST = 2 ** 32 - 1;
/** What settings are called, their number, least and most, and what they are where nobody says. */
const SETTINGS = [
  ['headerTableSize', 1, 0, LARGEST, 4096],
  ['enablePush', 2, 0, 1, true],
  ['initialWindowSize', 4, 0, 2 ** 31 - 1, 65535],
  ['maxFrameSize', 5, 16384, 2 ** 24 - 1, 16384],
  ['maxConcurrentStreams', 3, 0, LARGEST, LARGEST],
  ['maxHeaderListSize', 6, 0, LARGEST, 65535],
  ['maxHeaderSize', 6, 0, LARGEST, 65535],
  ['enableConnectProtocol', 8, 0, 1, false],
];

export const defaultSettings = () => Object.fromEntries(SETTINGS.map(([name, , , , value]) => [name, value]));

export function checkSettings(settings) {
  for (const [name, , least, most, value] of SETTINGS) {
    const given = settings[name];
    if (given === undefined) continue;
    const flag = typeof value === 'boolean';
    if (flag ? typeof given === 'boolean' : typeof given === 'number' && given >= least && given <= most)
      continue;
    throw coded(
      flag ? TypeError : RangeError,
      'ERR_HTTP2_INVALID_SETTING_VALUE',
      `Invalid value for setting "${name}": ${given}`,
      flag ? { actual: given } : { actual: given, min: least, max: most },
    );
  }
}

/** Writes settings that came as numbers and values into those that are known. */
export function learn(settings, flat) {
  for (let at = 0; at < flat.length; at += 2) {
    for (const [name, id, , , value] of SETTINGS)
      if (id === flat[at]) settings[name] = typeof value === 'boolean' ? flat[at + 1] !== 0 : flat[at + 1];
  }
}

export function pack(settings) {
  checkSettings(settings);
  const rows = new Map();
  for (const [name, id] of SETTINGS) if (settings[name] !== undefined) rows.set(id, Number(settings[name]));
  const bytes = Bytes.alloc(rows.size * 6);
  let at = 0;
  for (const [id, value] of [...rows].sort(([one], [other]) => one - other)) {
    bytes.writeUInt16BE(id, at);
    bytes.writeUInt32BE(value, at + 2);
    at += 6;
  }
  return bytes;
}

export function unpack(given) {
  if (given.length % 6 !== 0) throw refusal('INVALID_PACKED_SETTINGS_LENGTH');
  const bytes = Bytes.from(given.buffer, given.byteOffset, given.byteLength);
  const settings = {};
  for (let at = 0; at < bytes.length; at += 6)
    learn(settings, [bytes.readUInt16BE(at), bytes.readUInt32BE(at + 2)]);
  return settings;
}

export const bytesOf = (view) => Bytes.from(view.buffer, view.byteOffset, view.byteLength);
