export const name = 'held';

export function apply(host) {
  host.registerVault({ get: () => "the plugin's", set() {}, delete: () => false, list: () => [] });
}
