import promises from 'node:dns/promises';

function calling(run) {
  return (...given) => {
    const callback = given.pop();
    run(...given).then(
      (answer) =>
        Array.isArray(answer) || typeof answer === 'string'
          ? callback(null, answer)
          : callback(null, answer.address, answer.family),
      callback,
    );
  };
}

export const lookup = calling(promises.lookup);
export const resolve = calling(promises.resolve);
export const resolve4 = calling(promises.resolve4);
export const resolve6 = calling(promises.resolve6);
export const { ADDRCONFIG, ALL, V4MAPPED } = promises;
export const setDefaultResultOrder = () => {};
export const getDefaultResultOrder = () => 'verbatim';

const custom = Symbol.for('nodejs.util.promisify.custom');
Object.defineProperty(lookup, custom, { value: promises.lookup });

export { promises };
export default {
  ADDRCONFIG,
  ALL,
  V4MAPPED,
  getDefaultResultOrder,
  lookup,
  promises,
  resolve,
  resolve4,
  resolve6,
  setDefaultResultOrder,
};
