import { absent } from 'internal/absent';
import { close, console, open, url, waitForDebugger } from 'node:inspector';

export const Session = absent('inspector.Session', 'a plugin cannot be inspected; use console');

export { close, console, open, url, waitForDebugger };
export default { Session, close, console, url };
