import native from 'native/process';
import { absent } from 'internal/absent';

export const isatty = (fd) => native.isTerminal(fd);

export const ReadStream = absent('tty.ReadStream', 'a plugin has no terminal');
export const WriteStream = absent('tty.WriteStream', 'a plugin has no terminal; use console');

export default { isatty, ReadStream, WriteStream };
