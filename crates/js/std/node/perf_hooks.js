import { absent } from 'internal/absent';
import {
  Performance,
  PerformanceEntry,
  PerformanceMark,
  PerformanceMeasure,
  PerformanceObserver,
  PerformanceObserverEntryList,
  performance,
} from 'internal/performance';

const instead = 'measure with performance.now';

export const constants = {};
export const createHistogram = absent('perf_hooks.createHistogram', instead);
export const monitorEventLoopDelay = absent('perf_hooks.monitorEventLoopDelay', instead);
export const eventLoopUtilization = absent('perf_hooks.eventLoopUtilization', 'use process.cpuUsage');
export const timerify = (run) => performance.timerify(run);

export {
  Performance,
  PerformanceEntry,
  PerformanceMark,
  PerformanceMeasure,
  PerformanceObserver,
  PerformanceObserverEntryList,
  performance,
};
export default {
  Performance,
  PerformanceEntry,
  PerformanceMark,
  PerformanceMeasure,
  PerformanceObserver,
  PerformanceObserverEntryList,
  constants,
  createHistogram,
  eventLoopUtilization,
  monitorEventLoopDelay,
  performance,
  timerify,
};
