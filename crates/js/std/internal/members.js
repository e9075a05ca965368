// Members of web classes as the standard has them (Web IDL): packages enumerate and copy them.

/** Makes the public members of an object enumerable. */
function show(target, but) {
  for (const name of Object.getOwnPropertyNames(target)) {
    if (name.startsWith('_') || but.includes(name)) continue;
    const { configurable } = Object.getOwnPropertyDescriptor(target, name);
    if (configurable) Object.defineProperty(target, name, { enumerable: true });
  }
}

/** Makes the public members of classes enumerable, but those with these names. */
export function enumerable(Classes, but = []) {
  for (const Class of Classes) {
    show(Class, ['length', 'name', 'prototype', ...but]);
    show(Class.prototype, ['constructor', ...but]);
  }
}

/** Gives a class the members of another one, as those of a mixin. */
export function include(Class, mixin) {
  for (const name of Reflect.ownKeys(mixin.prototype)) {
    if (!Object.hasOwn(Class.prototype, name))
      Object.defineProperty(Class.prototype, name, Object.getOwnPropertyDescriptor(mixin.prototype, name));
  }
}

/** What `inspect` shows of an object whose members are accessors of its class; called with what it gives its own method. */
export function shown(object, members, depth, options, inspect) {
  if (depth < 0) return object;
  const inside = { ...options, depth: options.depth === null ? null : options.depth - 1 };
  return `${object.constructor.name} ${inspect(members, inside)}`;
}
