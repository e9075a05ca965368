import { absent } from 'internal/absent';

const instead = 'use AsyncLocalStorage of node:async_hooks, and catch errors where they occur';

export const Domain = absent('domain.Domain', instead);
export const create = absent('domain.create', instead);
export const createDomain = absent('domain.createDomain', instead);
export const active = null;

export default { Domain, active, create, createDomain };
