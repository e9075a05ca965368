// What the options of `Intl` have in common.

/** Returns an option that has to be one of some texts. */
export function choice(Class, options, name, offered, otherwise) {
  const value = options[name];
  if (value === undefined) return otherwise;
  if (!offered.includes(`${value}`))
    throw new RangeError(`Value ${value} out of range for Intl.${Class} options property ${name}`);
  return `${value}`;
}

/** Returns the options that were given as an object: none are allowed to be missing, other values are not. */
export function chosen(options) {
  if (options === undefined) return {};
  if (options === null) throw new TypeError('Cannot convert undefined or null to object');
  return Object(options);
}
