import native from 'native/process';
import { absent } from 'internal/absent';

export const isatty = (fd) => native.isTerminal(fd);

export const ReadStream = absent('tty.ReadStream');
export const WriteStream = absent('tty.WriteStream');

export default { isatty, ReadStream, WriteStream };
