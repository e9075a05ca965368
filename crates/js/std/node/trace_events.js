import { absent } from 'internal/absent';

export const createTracing = absent('trace_events.createTracing', 'use node:diagnostics_channel');
export const getEnabledCategories = () => undefined;

export default { createTracing, getEnabledCategories };
