import native from 'native/net';

export const ADDRCONFIG = 32;
export const V4MAPPED = 8;
export const ALL = 16;

async function addresses(host, family) {
  const found = await native.lookup(host);
  const rows = found.map((address) => ({ address, family: address.includes(':') ? 6 : 4 }));
  const fitting = family ? rows.filter((row) => row.family === family) : rows;
  if (fitting.length === 0) {
    throw Object.assign(new Error(`getaddrinfo ENOTFOUND ${host}`), {
      code: 'ENOTFOUND',
      errno: -3008,
      syscall: 'getaddrinfo',
      hostname: host,
    });
  }
  return fitting;
}

export async function lookup(host, options = {}) {
  const { family, all } = typeof options === 'number' ? { family: options } : options;
  const wanted = family === 'IPv4' ? 4 : family === 'IPv6' ? 6 : family;
  const rows = await addresses(host, wanted);
  return all ? rows : rows[0];
}

export const resolve4 = async (host) => (await addresses(host, 4)).map(({ address }) => address);
export const resolve6 = async (host) => (await addresses(host, 6)).map(({ address }) => address);
export const resolve = async (host, type = 'A') => (type === 'AAAA' ? resolve6(host) : resolve4(host));

export default { ADDRCONFIG, ALL, V4MAPPED, lookup, resolve, resolve4, resolve6 };
