// Values as bytes in V8's format, and figures of the heap.

import { absent } from 'internal/absent';
import { Deserializer, Serializer, deserialize, serialize } from 'internal/serialize';

// The host measures the memory of plugins.
export const getHeapSnapshot = undefined;
export const writeHeapSnapshot = undefined;
export const queryObjects = undefined;
export const DefaultSerializer = Serializer;
export const DefaultDeserializer = Deserializer;

export function getHeapStatistics() {
  const { heapUsed, heapTotal } = process.memoryUsage();
  return {
    total_heap_size: heapTotal,
    total_heap_size_executable: 0,
    total_physical_size: heapTotal,
    total_available_size: Math.max(0, process.constrainedMemory() - heapUsed),
    used_heap_size: heapUsed,
    heap_size_limit: process.constrainedMemory(),
    malloced_memory: heapUsed,
    peak_malloced_memory: heapUsed,
    does_zap_garbage: 0,
    number_of_native_contexts: 1,
    number_of_detached_contexts: 0,
    total_global_handles_size: 0,
    used_global_handles_size: 0,
    external_memory: 0,
  };
}

export const getHeapSpaceStatistics = () => [];
export const getHeapCodeStatistics = () => ({
  code_and_metadata_size: 0,
  bytecode_and_metadata_size: 0,
  external_script_source_size: 0,
  cpu_profiler_metadata_size: 0,
});
export const cachedDataVersionTag = () => 0;
export const setFlagsFromString = absent('v8.setFlagsFromString', 'the engine has no flags');
export const setHeapSnapshotNearHeapLimit = undefined;
export const isStringOneByteRepresentation = (text) => /^[\0-\xff]*$/.test(text);
export const getCppHeapStatistics = undefined;
export const GCProfiler = undefined;
export const startCpuProfile = undefined;
export const takeCoverage = () => {};
export const stopCoverage = () => {};
export const startupSnapshot = { isBuildingSnapshot: () => false };
export const promiseHooks = {
  createHook: absent('v8.promiseHooks.createHook', 'use AsyncLocalStorage of node:async_hooks'),
};

export { Deserializer, Serializer, deserialize, serialize };
export default {
  DefaultDeserializer,
  DefaultSerializer,
  Deserializer,
  Serializer,
  cachedDataVersionTag,
  deserialize,
  getHeapCodeStatistics,
  getHeapSpaceStatistics,
  getHeapStatistics,
  isStringOneByteRepresentation,
  promiseHooks,
  serialize,
  setFlagsFromString,
  startupSnapshot,
  stopCoverage,
  takeCoverage,
};
