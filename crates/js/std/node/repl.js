import { absent } from 'internal/absent';
import { builtinModules } from 'node:module';

const instead = 'a plugin has no terminal; register a command or a tool';

export const REPLServer = absent('repl.REPLServer', instead);
export const Recoverable = absent('repl.Recoverable', instead);
export const start = absent('repl.start', instead);
export const writer = absent('repl.writer', 'use inspect of node:util');
export const REPL_MODE_SLOPPY = Symbol('repl-sloppy');
export const REPL_MODE_STRICT = Symbol('repl-strict');

export { builtinModules };
export default {
  REPLServer,
  REPL_MODE_SLOPPY,
  REPL_MODE_STRICT,
  Recoverable,
  builtinModules,
  start,
  writer,
};
