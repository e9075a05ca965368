export const name = 'later';

export function apply(host) {
  host.registerResourceProvider('Notes', { read: () => ({ data: 'mine' }) });
  host.registerResourceProvider('plain', { read: () => ({ data: 'plain' }) });
}
