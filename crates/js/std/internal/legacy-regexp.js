// `RegExp.$1` and the other properties of the last match, which the engine does not have. Following every match costs time,
// so only a file that names them installs this.

let last = Object.assign([''], { index: 0, input: '' });
let installed = false;

/** Makes every match known to the properties. */
export function install() {
  if (installed) return;
  installed = true;
  const { apply } = Reflect;
  const { exec } = RegExp.prototype;
  const method = {
    exec(text) {
      const match = apply(exec, this, [text]);
      if (match !== null) last = match;
      return match;
    },
  };
  Object.defineProperty(RegExp.prototype, 'exec', { value: method.exec, configurable: true, writable: true });
  const properties = {
    input: ['$_', () => last.input],
    lastMatch: ['$&', () => last[0]],
    lastParen: ['$+', () => (last.length > 1 ? (last[last.length - 1] ?? '') : '')],
    leftContext: ['$`', () => last.input.slice(0, last.index)],
    rightContext: ["$'", () => last.input.slice(last.index + last[0].length)],
  };
  for (const name in properties) {
    const [short, get] = properties[name];
    for (const key of [name, short]) define(key, get);
  }
  for (let group = 1; group <= 9; group += 1) define(`$${group}`, () => last[group] ?? '');
}

/** Writing is ignored, as in V8. */
const define = (key, get) => Object.defineProperty(RegExp, key, { get, set() {}, configurable: true });
