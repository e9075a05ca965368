// `RegExp` with the flag `v`. The engine refuses some characters outside of classes; in literals they are replaced when a file
// is loaded. Only a file that may pass the flag to the constructor installs this.

import native from 'native/modules';

let installed = false;

/** Lets the constructor take every pattern with the flag. */
export function install() {
  if (installed) return;
  installed = true;
  const Native = RegExp;
  const make = (pattern, flags, target) => {
    const made = () => Reflect.construct(Native, [pattern, flags], target === Sets ? Native : target);
    try {
      return made();
    } catch (error) {
      const given = flags ?? pattern?.flags;
      if (!(error instanceof SyntaxError) || !`${given}`.includes('v')) throw error;
      pattern = native.escapeSets(`${pattern instanceof Native ? pattern.source : pattern}`);
      flags = given;
      return made();
    }
  };
  const Sets = new Proxy(Native, {
    construct: (_, [pattern, flags], target) => make(pattern, flags, target),
    apply: (_, __, [pattern, flags]) =>
      flags === undefined && pattern instanceof Native && pattern.constructor === Sets
        ? pattern
        : make(pattern, flags, Native),
  });
  Object.defineProperty(Native.prototype, 'constructor', { value: Sets, configurable: true, writable: true });
  Object.defineProperty(globalThis, 'RegExp', { value: Sets, configurable: true, writable: true });
}
