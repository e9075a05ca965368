export const name = 'later';

export function apply(host) {
  for (const name of ['x-method/echo', 'x-later/echo', 'x-ostler/usage/totals', 'x-ostler/anything']) {
    host.registerMethod(name, { grant: 'x-later:call', handle: () => name });
  }
}
