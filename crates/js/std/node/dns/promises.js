import native from 'native/net';
import { absent } from 'internal/absent';
import { coded, missing } from 'internal/errors';
import { readFileSync } from 'node:fs';

export const ADDRCONFIG = 32;
export const V4MAPPED = 8;
export const ALL = 16;

// Codes of errors.
export const ADDRGETNETWORKPARAMS = 'EADDRGETNETWORKPARAMS';
export const BADFAMILY = 'EBADFAMILY';
export const BADFLAGS = 'EBADFLAGS';
export const BADHINTS = 'EBADHINTS';
export const BADNAME = 'EBADNAME';
export const BADQUERY = 'EBADQUERY';
export const BADRESP = 'EBADRESP';
export const BADSTR = 'EBADSTR';
export const CANCELLED = 'ECANCELLED';
export const CONNREFUSED = 'ECONNREFUSED';
export const DESTRUCTION = 'EDESTRUCTION';
export const EOF = 'EOF';
export const FILE = 'EFILE';
export const FORMERR = 'EFORMERR';
export const LOADIPHLPAPI = 'ELOADIPHLPAPI';
export const NODATA = 'ENODATA';
export const NOMEM = 'ENOMEM';
export const NONAME = 'ENONAME';
export const NOTFOUND = 'ENOTFOUND';
export const NOTIMP = 'ENOTIMP';
export const NOTINITIALIZED = 'ENOTINITIALIZED';
export const REFUSED = 'EREFUSED';
export const SERVFAIL = 'ESERVFAIL';
export const TIMEOUT = 'ETIMEOUT';

const orders = ['verbatim', 'ipv4first', 'ipv6first'];
let order = 'verbatim';

function checkOrder(value, name) {
  if (!orders.includes(value)) {
    throw coded(
      TypeError,
      'ERR_INVALID_ARG_VALUE',
      `The ${name.includes('.') ? 'property' : 'argument'} '${name}' must be one of: ${orders.map((each) => `'${each}'`).join(', ')}. Received '${value}'`,
    );
  }
  return value;
}

export const getDefaultResultOrder = () => order;
export function setDefaultResultOrder(value) {
  order = checkOrder(value, 'dnsOrder');
}

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
  const given = typeof options === 'number' ? { family: options } : (options ?? {});
  const { family, all, verbatim } = given;
  const by =
    given.order === undefined
      ? verbatim === undefined
        ? order
        : verbatim
          ? 'verbatim'
          : 'ipv4first'
      : checkOrder(given.order, 'options.order');
  const wanted = family === 'IPv4' ? 4 : family === 'IPv6' ? 6 : family;
  const rows = await addresses(host, wanted || undefined);
  const first = { ipv4first: 4, ipv6first: 6 }[by];
  if (first) rows.sort((a, b) => (b.family === first) - (a.family === first));
  return all ? rows : rows[0];
}

export const resolve4 = async (host) => (await addresses(host, 4)).map(({ address }) => address);
export const resolve6 = async (host) => (await addresses(host, 6)).map(({ address }) => address);
export const resolve = async (host, type = 'A') => (type === 'AAAA' ? resolve6(host) : resolve4(host));

/** Asks the system's resolver; other servers cannot be set. */
export class Resolver {
  cancel() {}
  getServers() {
    return getServers();
  }
  setServers() {
    throw missing('dns.Resolver.setServers', "names are resolved by the system's servers");
  }
  setLocalAddress() {
    throw missing('dns.Resolver.setLocalAddress', "names are resolved by the system's servers");
  }
  resolve(host, type) {
    return resolve(host, type);
  }
  resolve4(host) {
    return resolve4(host);
  }
  resolve6(host) {
    return resolve6(host);
  }
}

const records = ['Any', 'Caa', 'Cname', 'Mx', 'Naptr', 'Ns', 'Ptr', 'Soa', 'Srv', 'Tlsa', 'Txt'];
const [
  resolveAny,
  resolveCaa,
  resolveCname,
  resolveMx,
  resolveNaptr,
  resolveNs,
  resolvePtr,
  resolveSoa,
  resolveSrv,
  resolveTlsa,
  resolveTxt,
] = records.map((kind) => absent(`dns.resolve${kind}`, 'use DNS over HTTPS with fetch'));
for (const kind of records) {
  Resolver.prototype[`resolve${kind}`] = async () => {
    throw missing(`dns.resolve${kind}`, 'use DNS over HTTPS with fetch');
  };
}
const reverse = absent('dns.reverse', 'use DNS over HTTPS with fetch');
const lookupService = absent('dns.lookupService', 'use DNS over HTTPS with fetch');
/** Those that the system asks. */
function getServers() {
  let text = '';
  try {
    text = readFileSync('/etc/resolv.conf', 'utf8');
  } catch {
    // Without the file, the system asks the same machine.
  }
  const servers = [...text.matchAll(/^\s*nameserver\s+(\S+)/gm)].map((row) => row[1]);
  return servers.length > 0 ? servers : ['127.0.0.1'];
}

const setServers = absent('dns.setServers', "names are resolved by the system's servers");

export {
  getServers,
  lookupService,
  resolveAny,
  resolveCaa,
  resolveCname,
  resolveMx,
  resolveNaptr,
  resolveNs,
  resolvePtr,
  resolveSoa,
  resolveSrv,
  resolveTlsa,
  resolveTxt,
  reverse,
  setServers,
};
export default {
  ADDRCONFIG,
  ADDRGETNETWORKPARAMS,
  ALL,
  BADFAMILY,
  BADFLAGS,
  BADHINTS,
  BADNAME,
  BADQUERY,
  BADRESP,
  BADSTR,
  CANCELLED,
  CONNREFUSED,
  DESTRUCTION,
  EOF,
  FILE,
  FORMERR,
  LOADIPHLPAPI,
  NODATA,
  NOMEM,
  NONAME,
  NOTFOUND,
  NOTIMP,
  NOTINITIALIZED,
  REFUSED,
  Resolver,
  SERVFAIL,
  TIMEOUT,
  V4MAPPED,
  getDefaultResultOrder,
  getServers,
  lookup,
  lookupService,
  resolve,
  resolve4,
  resolve6,
  resolveAny,
  resolveCaa,
  resolveCname,
  resolveMx,
  resolveNaptr,
  resolveNs,
  resolvePtr,
  resolveSoa,
  resolveSrv,
  resolveTlsa,
  resolveTxt,
  reverse,
  setDefaultResultOrder,
  setServers,
};
