export const name = 'ports';

/** Registers ports with just what they require: each without one of its members, and then whole. */
export function apply(host, { ports }) {
  for (const { method, members, resource } of ports) {
    // The one member that is no function.
    const whole = Object.fromEntries(members.map((member) => [member, member === 'resource' ? { resource } : () => null]));
    for (const without of [...members, undefined]) {
      try {
        host[method]({ ...whole, ...(without && { [without]: undefined }) });
        host.log('taken');
      } catch (error) {
        host.log(error.message);
      }
    }
  }
}
