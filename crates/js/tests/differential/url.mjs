import url from 'node:url';
import { Random, attempt, wellFormed } from './lib.mjs';

const starts = ['http://', 'https://', 'file://', 'file:///', 'ws://', 'ftp://', 'mailto:', 'data:', 'x:', '//', '/', '', 'http:', 'HTTP://', ' http://'];
const hosts = ['example.com', 'EXAMPLE.com', 'a', 'localhost', '127.0.0.1', '0x7f.1', '[::1]', '[::1', 'user:pw@h', 'us%65r@h', 'münchen.de', 'xn--mnchen-3ya.de', 'a b', 'h:80', 'h:443', 'h:99999', 'h:8080', '', 'ß.de', '1.2.3', '256.256.256.256', '%41.com'];
const tails = ['/', '/a/b', '/a/../b', '/./', '/%2e/c', '?q', '?a=b&c=d', '?a=é', '#h', '#', '?', '/ä', '/a b', '/"<>`{}|\\^', '?"\'<>', '#"`<>', '/%', '/%zz', ';p=1', '\\x', '/😀', '\t/x', '/a//b'];
const setters = ['href', 'protocol', 'username', 'password', 'host', 'hostname', 'port', 'pathname', 'search', 'hash'];
const given = ['', 'a', 'https:', 'http', 'x:', 'h:81', '81', '81x', '99999', '/é', '?é', '#é', 'a b', 'example.org:443', '[::2]', '%41', ':', '/..', 'file'];

export default (seed) => {
  const random = new Random(seed);
  const rows = [];
  const show = (made) => setters.map((name) => made[name]).concat(made.origin, [...made.searchParams]);
  for (let at = 0; at < 20; at += 1) {
    const text = random.one(starts) + random.one(hosts) + random.text(tails, 3);
    const base = random.chance(40) ? random.one(['http://base/x/y?z#w', 'file:///base/x', 'data:x']) : undefined;
    rows.push(['new URL', [text, base ?? null], attempt(() => show(new URL(text, base)))]);
    rows.push(['URL.canParse', [text, base ?? null], attempt(() => URL.canParse(text, base))]);
    const name = random.one(setters);
    const value = random.one(given);
    rows.push([`URL.${name} =`, [text, value], attempt(() => {
      const made = new URL(text);
      made[name] = value;
      return show(made);
    })]);
    rows.push(['url.parse', text, attempt(() => {
      const { protocol, slashes, auth, host, port, hostname, hash, search, query, pathname, path, href } = url.parse(text);
      return { protocol, slashes, auth, host, port, hostname, hash, search, query, pathname, path, href };
    })]);
    rows.push(['url.resolve', text, attempt(() => url.resolve('http://base/x/y?z#w', text))]);
    rows.push(['url.fileURLToPath', text, attempt(() => url.fileURLToPath(text))]);
    rows.push(['url.pathToFileURL', text, attempt(() => url.pathToFileURL(`/${text}`).href)]);
    rows.push(['url.domainToASCII', text, attempt(() => url.domainToASCII(random.one(hosts)))]);
    const params = new URLSearchParams(random.text(tails, 3));
    for (const [call, ...rest] of [['append', 'a', 'é'], ['set', 'a', '+ '], ['delete', 'c'], ['sort'], ['get', 'q'], ['has', 'a', 'b']]) {
      if (random.chance(60)) rows.push([`URLSearchParams.${call}`, rest, attempt(() => [params[call](...rest), `${params}`, params.size])]);
    }
  }
  return wellFormed(rows);
};
