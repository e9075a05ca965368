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
export const {
  ADDRGETNETWORKPARAMS,
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
  SERVFAIL,
  TIMEOUT,
} = promises;
export const { getDefaultResultOrder, setDefaultResultOrder } = promises;

export const {
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
} = promises;

/** As that of `dns.promises`, with callbacks. */
export class Resolver extends promises.Resolver {
  resolve(host, type, callback) {
    if (typeof type === 'function') [type, callback] = ['A', type];
    resolve(host, type, callback);
  }
  resolve4(host, ...given) {
    resolve4(host, given.at(-1));
  }
  resolve6(host, ...given) {
    resolve6(host, given.at(-1));
  }
}

const custom = Symbol.for('nodejs.util.promisify.custom');
Object.defineProperty(lookup, custom, { value: promises.lookup });

export { promises };
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
  promises,
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
