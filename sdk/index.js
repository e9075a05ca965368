// `@ostler/sdk` for Node: what tests of plugins run without the daemon. In the daemon, the engine provides the module.

export { memoryRecords } from './memory-records.js';
export { RpcError } from './rpc-error.js';

/** Exports that are the daemon's own code. */
const ofDaemon = (name) => () => {
  throw new Error(`${name} of @ostler/sdk needs the daemon: run this test with ostler plugin check`);
};

export const checkPolicy = ofDaemon('checkPolicy');
export const filePolicies = ofDaemon('filePolicies');
export const toolServers = ofDaemon('toolServers');
