export const name = 'later';

export function apply(host) {
  host.registerSessionConfig('mood', { type: 'string', title: 'Mine' });
  host.registerSessionConfig('loud', { type: 'boolean' });
}
