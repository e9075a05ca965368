import { absent } from 'internal/absent';

const instead = 'a plugin cannot be inspected; use console';

export const Session = absent('inspector.Session', instead);
export const open = undefined;
export const waitForDebugger = undefined;
export const close = () => {};
export const url = () => undefined;
export const console = globalThis.console;

export default { Session, close, console, url };
