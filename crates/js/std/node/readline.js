import { absent } from 'internal/absent';
import { Interface } from 'internal/readline';
import promises from 'node:readline/promises';

export function createInterface(input, output) {
  return new Interface(input, output);
}

export const clearLine = () => true;
export const clearScreenDown = () => true;
export const cursorTo = () => true;
export const moveCursor = () => true;
export const emitKeypressEvents = absent('readline.emitKeypressEvents', 'a plugin has no terminal');

export { Interface, promises };
export default {
  Interface,
  clearLine,
  clearScreenDown,
  createInterface,
  cursorTo,
  emitKeypressEvents,
  moveCursor,
  promises,
};
