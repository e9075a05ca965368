// `@ostler/sdk`, as the engine serves it to plugins: no install needed.

export { memoryRecords } from './memory-records.js';
export { checkPolicy, filePolicies } from './policies.js';
export { RpcError } from './rpc-error.js';
export { toolServers } from './tool-servers.js';
