export const name = 'ports';

/** Registers ports with just what they require: each without one of its members, and then whole. */
export function apply(host, { ports }) {
  for (const { method, members } of ports) {
    for (const without of [...members, undefined]) {
      const given = members.filter((member) => member !== without);
      try {
        host[method](Object.fromEntries(given.map((member) => [member, () => null])));
        host.log('taken');
      } catch (error) {
        host.log(error.message);
      }
    }
  }
}
