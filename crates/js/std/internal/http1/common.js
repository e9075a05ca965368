// What clients and servers of HTTP/1 share: names, values and errors.

import { coded, wrongType } from 'internal/errors';

export const METHODS = (
  'ACL BIND CHECKOUT CONNECT COPY DELETE GET HEAD LINK LOCK M-SEARCH MERGE MKACTIVITY MKCALENDAR MKCOL MOVE NOTIFY ' +
  'OPTIONS PATCH POST PROPFIND PROPPATCH PURGE PUT QUERY REBIND REPORT SEARCH SOURCE SUBSCRIBE TRACE UNBIND UNLINK ' +
  'UNLOCK UNSUBSCRIBE'
).split(' ');

export const STATUS_CODES = {
  100: 'Continue',
  101: 'Switching Protocols',
  102: 'Processing',
  103: 'Early Hints',
  200: 'OK',
  201: 'Created',
  202: 'Accepted',
  203: 'Non-Authoritative Information',
  204: 'No Content',
  205: 'Reset Content',
  206: 'Partial Content',
  207: 'Multi-Status',
  208: 'Already Reported',
  226: 'IM Used',
  300: 'Multiple Choices',
  301: 'Moved Permanently',
  302: 'Found',
  303: 'See Other',
  304: 'Not Modified',
  305: 'Use Proxy',
  307: 'Temporary Redirect',
  308: 'Permanent Redirect',
  400: 'Bad Request',
  401: 'Unauthorized',
  402: 'Payment Required',
  403: 'Forbidden',
  404: 'Not Found',
  405: 'Method Not Allowed',
  406: 'Not Acceptable',
  407: 'Proxy Authentication Required',
  408: 'Request Timeout',
  409: 'Conflict',
  410: 'Gone',
  411: 'Length Required',
  412: 'Precondition Failed',
  413: 'Payload Too Large',
  414: 'URI Too Long',
  415: 'Unsupported Media Type',
  416: 'Range Not Satisfiable',
  417: 'Expectation Failed',
  418: "I'm a Teapot",
  421: 'Misdirected Request',
  422: 'Unprocessable Entity',
  423: 'Locked',
  424: 'Failed Dependency',
  425: 'Too Early',
  426: 'Upgrade Required',
  428: 'Precondition Required',
  429: 'Too Many Requests',
  431: 'Request Header Fields Too Large',
  451: 'Unavailable For Legal Reasons',
  500: 'Internal Server Error',
  501: 'Not Implemented',
  502: 'Bad Gateway',
  503: 'Service Unavailable',
  504: 'Gateway Timeout',
  505: 'HTTP Version Not Supported',
  506: 'Variant Also Negotiates',
  507: 'Insufficient Storage',
  508: 'Loop Detected',
  509: 'Bandwidth Limit Exceeded',
  510: 'Not Extended',
  511: 'Network Authentication Required',
};

const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const INVALID_VALUE = /[^\t\u0020-\u007e\u0080-\u00ff]/;

export const isToken = (text) => TOKEN.test(text);
export const isInvalidValue = (text) => INVALID_VALUE.test(text);

export function validateHeaderName(name, label) {
  if (typeof name !== 'string' || !isToken(name)) {
    throw coded(
      TypeError,
      'ERR_INVALID_HTTP_TOKEN',
      `${label || 'Header name'} must be a valid HTTP token ["${name}"]`,
    );
  }
}

export function validateHeaderValue(name, value) {
  if (value === undefined) {
    throw coded(TypeError, 'ERR_HTTP_INVALID_HEADER_VALUE', `Invalid value "${value}" for header "${name}"`);
  }
  const values = Array.isArray(value) ? value : [value];
  if (values.some((each) => isInvalidValue(`${each}`))) {
    throw coded(TypeError, 'ERR_INVALID_CHAR', `Invalid character in header content ["${name}"]`);
  }
}

/** The connection ended before it should. */
export function hangUp(message = 'socket hang up') {
  return coded(Error, 'ECONNRESET', message);
}

/** The header and value pairs of an object, a list of pairs, a flat list, a `Map` or `Headers`. */
export function headerPairs(headers) {
  if (headers === undefined || headers === null) return [];
  if (Array.isArray(headers)) {
    if (headers.length === 0 || Array.isArray(headers[0]))
      return headers.map(([name, value]) => [name, value]);
    if (headers.length % 2 !== 0)
      throw coded(TypeError, 'ERR_INVALID_ARG_VALUE', `The argument 'headers' is invalid.`);
    return Array.from({ length: headers.length / 2 }, (_, at) => [headers[at * 2], headers[at * 2 + 1]]);
  }
  if (typeof headers !== 'object') throw wrongType('headers', 'of type object', headers);
  if (typeof headers.entries === 'function' && typeof headers.forEach === 'function')
    return [...headers.entries()];
  return Object.entries(headers);
}

let cachedAt = 0;
let cached = '';

/** The time for the header `Date`. */
export function date() {
  const now = Date.now();
  if (now - cachedAt >= 1000) {
    cachedAt = now - (now % 1000);
    cached = new Date(now).toUTCString();
  }
  return cached;
}
