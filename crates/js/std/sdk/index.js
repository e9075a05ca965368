// `@ostler/sdk`, as the engine serves it to plugins: no install needed.

export { RpcError } from './rpc-error.js';
export { memoryRecords } from './memory-records.js';
