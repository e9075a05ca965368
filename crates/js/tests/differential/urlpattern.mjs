// `URLPattern`: random patterns, and random URLs to match.
import { Random, attempt } from './lib.mjs';

const PATHS = ['/a', '/a/b', '/a/b/c.html', '/', '/A', '/a%20b', '/ü', '/1/2', '/a/', '//', '/a.b', '/a-1'];
const HOSTS = ['example.com', 'www.example.com', 'a.b.example.com', 'localhost', '127.0.0.1', 'ü.de', 'EXAMPLE.com'];
const PATTERNS = ['/a', '/:id', '/:a/:b', '/:id?', '/:rest*', '/:rest+', '/*', '/a/*', '/:n(\\d+)', '/(a|b)/:c', '/a{/b}?', '/{:x}-{:y}', '/:name.:ext', '/a{.html}?', '/a\\:b', '/A', '/:id(', '/(?:a)', '/:1', '{', '/ü', '/a b', '*', '', '/:x(a.*)', '/{a}*', '/((?=a)a)', '/:a-:b', '(.*)'];
const HOST_PATTERNS = ['*', '*.example.com', ':sub.example.com', 'example.com', '{www.}?example.com', 'localhost', 'EXAMPLE.com', 'ü.de', '(.*)', '[::1]', 'bad host'];
const STRINGS = ['https://example.com/:id', 'http{s}?://*/a', 'https://*.example.com/*', '/:id', ':scheme://:host/:path*', 'https://example.com:8080/*?q=:q#:h', 'data:text/:x', 'https://a:b@example.com/*', '?q=*', '#:hash', 'https://example.com', 'example.com/:id', '*://*', 'https://(a|b).com/', 'about:blank', 'https://{sub.}?example{.com/}a', 'https://exa mple.com', 'https://example.com?q', 'https://[\\:\\:1]/'];

function init(random) {
  const made = {};
  if (random.chance(80)) made.pathname = random.one(PATTERNS);
  if (random.chance(35)) made.hostname = random.one(HOST_PATTERNS);
  if (random.chance(20)) made.protocol = random.one(['http', 'http{s}?', 'https', '*', ':p', 'file', 'ht tp', '(http|https)']);
  if (random.chance(15)) made.port = random.one(['', '80', '8080', '*', '443', ':port', 'x']);
  if (random.chance(15)) made.search = random.one(['q=:v', '*', '', '?x', 'a=1&b=:b', 'ü=:b']);
  if (random.chance(10)) made.hash = random.one([':h', '*', '#x', '', 'ü']);
  if (random.chance(15)) made.baseURL = random.one(['https://example.com/a/b', 'http://localhost:8080/?q#h', 'nope']);
  return made;
}

function url(random) {
  const text = `${random.one(['http', 'https'])}://${random.chance(10) ? 'u:p@' : ''}${random.one(HOSTS)}${random.one(['', '', ':8080', ':80', ':443'])}${random.one(PATHS)}${random.one(['', '?q=1', '?x', '?a=1&b=2'])}${random.one(['', '', '#h'])}`;
  if (random.chance(75)) return [text];
  if (random.chance(40)) return [random.one([...PATHS, 'b', '?z', '']), random.one(['https://example.com/x/y', 'nope'])];
  return [{ pathname: random.one(PATHS), ...(random.chance(50) ? { hostname: random.one(HOSTS) } : {}), ...(random.chance(30) ? { baseURL: text } : {}) }];
}

const PARTS = ['protocol', 'username', 'password', 'hostname', 'port', 'pathname', 'search', 'hash', 'hasRegExpGroups'];

/** Node names members of an input that were not given. */
const parts = (result) => result && { ...result, inputs: result.inputs.length };

export default (seed) => {
  const random = new Random(seed);
  const rows = [];
  for (let at = 0; at < 12; at += 1) {
    const options = random.chance(25) ? [{ ignoreCase: true }] : [];
    const given = random.chance(55) ? [init(random), ...options] : [random.one(STRINGS), ...(random.chance(60) ? [random.one(['https://example.com/a/b?c#d', 'http://localhost:80', 'nope'])] : []), ...options];
    let pattern;
    const how = given[0]?.protocol === 'file' ? ' of files' : '';
    rows.push([`new URLPattern${how}`, given, attempt(() => {
      pattern = new URLPattern(...given);
      return Object.fromEntries(PARTS.map((name) => [name, pattern[name]]));
    })]);
    for (let times = 0; times < 4; times += 1) {
      const input = url(random);
      rows.push(['test', [given, input], pattern ? attempt(() => pattern.test(...input)) : null]);
      rows.push(['exec', [given, input], pattern ? attempt(() => parts(pattern.exec(...input))) : null]);
    }
  }
  rows.push(['called with others', null, [5, null, true].map((value) => attempt(() => Object.keys(new URLPattern(value))))]);
  rows.push(['empty', null, [attempt(() => new URLPattern().test()), attempt(() => parts(new URLPattern({}).exec({})))]]);
  return rows;
};
