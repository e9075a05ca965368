// What a certificate says, read from its DER.

import { Bytes } from 'internal/buffer';
import { createHash } from 'node:crypto';

const NAMES = {
  '2.5.4.3': 'CN',
  '2.5.4.6': 'C',
  '2.5.4.7': 'L',
  '2.5.4.8': 'ST',
  '2.5.4.10': 'O',
  '2.5.4.11': 'OU',
  '1.2.840.113549.1.9.1': 'emailAddress',
  '0.9.2342.19200300.100.1.25': 'DC',
};
const MONTHS = 'Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec'.split(' ');

/** The element at `at`: its tag, its content, and where the next begins. */
function element(bytes, at = 0) {
  const tag = bytes[at];
  let length = bytes[at + 1];
  let begin = at + 2;
  if (length & 128) {
    const digits = length & 127;
    length = 0;
    for (let digit = 0; digit < digits; digit += 1) length = length * 256 + bytes[begin + digit];
    begin += digits;
  }
  const end = begin + length;
  if (tag === undefined || end > bytes.length) throw new Error('the certificate is cut off');
  return { tag, content: bytes.subarray(begin, end), whole: bytes.subarray(at, end), end };
}

function elements(bytes) {
  const all = [];
  for (let at = 0; at < bytes.length;) {
    const next = element(bytes, at);
    all.push(next);
    at = next.end;
  }
  return all;
}

function identifier(bytes) {
  const parts = [Math.min(2, Math.floor(bytes[0] / 40))];
  parts.push(bytes[0] - parts[0] * 40);
  let value = 0;
  for (const byte of bytes.subarray(1)) {
    value = value * 128 + (byte & 127);
    if (byte < 128) {
      parts.push(value);
      value = 0;
    }
  }
  return parts.join('.');
}

const text = ({ tag, content }) =>
  tag === 0x1e ? Bytes.from(content).swap16().toString('utf16le') : content.toString('utf8');

function name(bytes) {
  const parts = Object.create(null);
  for (const set of elements(bytes)) {
    for (const pair of elements(set.content)) {
      const [type, value] = elements(pair.content);
      const key = identifier(type.content);
      const known = NAMES[key] ?? key;
      parts[known] = parts[known] === undefined ? text(value) : [parts[known], text(value)].flat();
    }
  }
  return parts;
}

function time({ tag, content }) {
  const digits = content.toString('latin1');
  const cut = tag === 0x17 ? 2 : 4;
  let year = Number(digits.slice(0, cut));
  if (tag === 0x17) year += year < 50 ? 2000 : 1900;
  const [month, day, hours, minutes, seconds] = digits.slice(cut).match(/\d\d/g).map(Number);
  return new Date(Date.UTC(year, month - 1, day, hours, minutes, seconds));
}

const two = (number) => String(number).padStart(2, '0');
const shown = (date) =>
  `${MONTHS[date.getUTCMonth()]} ${String(date.getUTCDate()).padStart(2)} ${two(date.getUTCHours())}:${two(date.getUTCMinutes())}:${two(date.getUTCSeconds())} ${date.getUTCFullYear()} GMT`;

function address(bytes) {
  if (bytes.length === 4) return [...bytes].join('.');
  return Array.from({ length: 8 }, (_, at) =>
    bytes
      .readUInt16BE(at * 2)
      .toString(16)
      .toUpperCase(),
  ).join(':');
}

function alternatives(bytes) {
  const kinds = {
    0x81: (content) => `email:${content.toString('latin1')}`,
    0x82: (content) => `DNS:${content.toString('latin1')}`,
    0x86: (content) => `URI:${content.toString('latin1')}`,
    0x87: (content) => `IP Address:${address(content)}`,
  };
  return elements(element(bytes).content)
    .map(({ tag, content }) => kinds[tag]?.(content))
    .filter(Boolean)
    .join(', ');
}

const fingerprint = (algorithm, der) =>
  createHash(algorithm).update(der).digest('hex').toUpperCase().match(/../g).join(':');

/** As `getPeerCertificate` shows it; with `selfSigned`, which is not enumerable. */
export function certificate(bytes) {
  const der = Bytes.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const parts = elements(element(element(der).content).content);
  if (parts[0].tag === 0xa0) parts.shift();
  const [serial, , issuer, validity, subject, , ...rest] = parts;
  const [from, to] = elements(validity.content).map(time);
  const extensions = rest.find(({ tag }) => tag === 0xa3);
  let subjectaltname;
  let ca = false;
  for (const extension of extensions ? elements(element(extensions.content).content) : []) {
    const fields = elements(extension.content);
    const kind = identifier(fields[0].content);
    const value = fields.at(-1).content;
    if (kind === '2.5.29.17') subjectaltname = alternatives(value);
    if (kind === '2.5.29.19') ca = elements(element(value).content)[0]?.content[0] === 0xff;
  }
  const number =
    serial.content[0] === 0 && serial.content.length > 1 ? serial.content.subarray(1) : serial.content;
  const made = {
    subject: name(subject.content),
    issuer: name(issuer.content),
    subjectaltname,
    ca,
    valid_from: shown(from),
    valid_to: shown(to),
    fingerprint: fingerprint('sha1', der),
    fingerprint256: fingerprint('sha256', der),
    fingerprint512: fingerprint('sha512', der),
    serialNumber: Bytes.from(number).toString('hex').toUpperCase(),
    raw: der,
  };
  if (subjectaltname === undefined) delete made.subjectaltname;
  Object.defineProperty(made, 'selfSigned', { value: subject.whole.equals(issuer.whole) });
  return made;
}

/** The digest of a signature's algorithm; empty where it names none. */
const SIGNATURES = {
  '1.2.840.113549.1.1.5': 'sha1',
  '1.2.840.113549.1.1.11': 'sha256',
  '1.2.840.113549.1.1.12': 'sha384',
  '1.2.840.113549.1.1.13': 'sha512',
  '1.2.840.10045.4.1': 'sha1',
  '1.2.840.10045.4.3.2': 'sha256',
  '1.2.840.10045.4.3.3': 'sha384',
  '1.2.840.10045.4.3.4': 'sha512',
  '1.3.101.112': '',
};

/** The public key of a certificate, and what its issuer signed. */
export function parts(der) {
  const [body, algorithm, signature] = elements(element(der).content);
  const fields = elements(body.content);
  if (fields[0].tag === 0xa0) fields.shift();
  return {
    publicKey: fields[5].whole,
    signed: body.whole,
    algorithm: SIGNATURES[identifier(elements(algorithm.content)[0].content)],
    signature: signature.content.subarray(1),
  };
}

function matches(pattern, host) {
  const [wanted, given] = [pattern, host].map((each) => each.toLowerCase().replace(/\.$/, '').split('.'));
  if (wanted.length !== given.length) return false;
  if (wanted[0] === '*' && wanted.length > 2)
    return wanted.slice(1).every((label, at) => label === given[at + 1]);
  return wanted.every((label, at) => label === given[at]);
}

/** Why a certificate does not fit a host; nothing where it does. */
export function mismatch(host, { subject, subjectaltname }, isIp) {
  const names = `${subjectaltname ?? ''}`.split(', ').filter(Boolean);
  const of = (kind) => names.filter((each) => each.startsWith(kind)).map((each) => each.slice(kind.length));
  if (isIp(host)) {
    const addresses = of('IP Address:');
    return addresses.some((each) => each.toLowerCase() === host.toLowerCase())
      ? undefined
      : `IP: ${host} is not in the cert's list: ${addresses.join(', ')}`;
  }
  const domains = of('DNS:');
  if (domains.length > 0) {
    return domains.some((each) => matches(each, host))
      ? undefined
      : `Host: ${host}. is not in the cert's altnames: ${subjectaltname}`;
  }
  const common = [subject?.CN ?? []].flat();
  if (common.length === 0) return 'Cert does not contain a DNS name';
  return common.some((each) => matches(each, host))
    ? undefined
    : `Host: ${host}. is not cert's CN: ${common}`;
}
