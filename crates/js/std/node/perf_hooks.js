import { performance } from 'internal/performance';

export { performance };
export const constants = {};
export const PerformanceEntry = performance._Entry;

export class PerformanceObserver {
  static supportedEntryTypes = [];
  observe() {}
  disconnect() {}
  takeRecords() {
    return [];
  }
}

export function monitorEventLoopDelay() {
  return { enable() {}, disable() {}, reset() {}, min: 0, max: 0, mean: 0, stddev: 0, percentile: () => 0 };
}

export default { performance, constants, PerformanceEntry, PerformanceObserver, monitorEventLoopDelay };
