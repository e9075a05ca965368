import native from 'native/process';
import { missing } from 'internal/errors';

export const isatty = (fd) => native.isTerminal(fd);

export class ReadStream {
  constructor() {
    throw missing('tty.ReadStream');
  }
}

export class WriteStream {
  constructor() {
    throw missing('tty.WriteStream');
  }
}

export default { isatty, ReadStream, WriteStream };
