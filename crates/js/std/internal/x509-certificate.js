// `X509Certificate` of `node:crypto`.

import { Bytes } from 'internal/buffer';
import { checkString, coded, wrongType } from 'internal/errors';
import { createPublicKey, KeyObject } from 'internal/keys';
import { certificate, mismatch, parts } from 'internal/x509';
import { verify } from 'node:crypto';

const isIP = (text) => (text.includes(':') ? 6 : /^\d+(\.\d+){3}$/.test(text) ? 4 : 0);

const BEGIN = '-----BEGIN CERTIFICATE-----';

function derOf(given) {
  let bytes;
  if (typeof given === 'string') bytes = Bytes.from(given);
  else if (ArrayBuffer.isView(given)) bytes = Bytes.from(given);
  else if (given instanceof ArrayBuffer) bytes = Bytes.from(given);
  else throw wrongType('buffer', 'of type string or an instance of Buffer, TypedArray, or DataView', given);
  const text = bytes.toString('latin1');
  const at = text.indexOf(BEGIN);
  if (at < 0) return bytes;
  return Bytes.from(text.slice(at + BEGIN.length, text.indexOf('-----END', at)), 'base64');
}

/** A name as one line for each part. */
const lines = (name) =>
  Object.entries(name)
    .flatMap(([key, values]) => [values].flat().map((value) => `${key}=${value}`))
    .join('\n');

export class X509Certificate {
  #seen;
  #parts;

  constructor(given) {
    const der = derOf(given);
    try {
      this.#seen = certificate(der);
      this.#parts = parts(der);
    } catch {
      throw coded(Error, 'ERR_OSSL_ASN1_WRONG_TAG', 'error:0680007B:asn1 encoding routines::header too long');
    }
  }

  get subject() {
    return lines(this.#seen.subject) || undefined;
  }
  get issuer() {
    return lines(this.#seen.issuer) || undefined;
  }
  get subjectAltName() {
    return this.#seen.subjectaltname;
  }
  get validFrom() {
    return this.#seen.valid_from;
  }
  get validTo() {
    return this.#seen.valid_to;
  }
  get validFromDate() {
    return new Date(this.#seen.valid_from);
  }
  get validToDate() {
    return new Date(this.#seen.valid_to);
  }
  get fingerprint() {
    return this.#seen.fingerprint;
  }
  get fingerprint256() {
    return this.#seen.fingerprint256;
  }
  get fingerprint512() {
    return this.#seen.fingerprint512;
  }
  get serialNumber() {
    return this.#seen.serialNumber;
  }
  get ca() {
    return this.#seen.ca;
  }
  get raw() {
    return this.#seen.raw;
  }
  get publicKey() {
    return createPublicKey({ key: this.#parts.publicKey, format: 'der', type: 'spki' });
  }

  toString() {
    const text = this.raw
      .toString('base64')
      .match(/.{1,64}/g)
      .join('\n');
    return `${BEGIN}\n${text}\n-----END CERTIFICATE-----\n`;
  }

  toJSON() {
    return this.toString();
  }

  toLegacyObject() {
    return { ...this.#seen };
  }

  checkHost(name) {
    checkString(name, 'name');
    return mismatch(name, this.#seen, () => 0) === undefined ? name : undefined;
  }

  checkIP(address) {
    checkString(address, 'ip');
    if (!isIP(address)) return undefined;
    return mismatch(address, this.#seen, isIP) === undefined ? address : undefined;
  }

  checkEmail(address) {
    checkString(address, 'email');
    const names = `${this.#seen.subjectaltname ?? ''}`.split(', ');
    const own = [this.#seen.subject.emailAddress ?? []].flat();
    return names.includes(`email:${address}`) || own.includes(address) ? address : undefined;
  }

  checkIssued(other) {
    return lines(this.#seen.issuer) === (other.subject ?? '') && this.verify(other.publicKey);
  }

  checkPrivateKey(key) {
    if (!(key instanceof KeyObject)) throw wrongType('pkey', 'an instance of KeyObject', key);
    const derived = createPublicKey(key).export({ type: 'spki', format: 'der' });
    return derived.equals(this.publicKey.export({ type: 'spki', format: 'der' }));
  }

  /** Whether the certificate is signed with this key. */
  verify(key) {
    if (!(key instanceof KeyObject)) throw wrongType('pkey', 'an instance of KeyObject', key);
    const { signed, algorithm, signature } = this.#parts;
    if (algorithm === undefined) return false;
    try {
      return verify(algorithm || null, signed, key, signature);
    } catch {
      return false;
    }
  }
}
